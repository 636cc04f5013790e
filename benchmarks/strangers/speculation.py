"""Generation by two models: a small one guesses ahead, a large one takes or leaves it.

Letters: B batch, J tokens at once, P places of the cache, D features, K heads of keys,
G heads of queries for each, H features of a head, V vocab, L layers.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.gpt import half
from benchmarks.strangers.language import swiglu
from benchmarks.strangers.step import Target, Tree, shape, whole

GUESSES = 4
ROUNDS = 64
BASE = 500_000.0
END = 128_001

# -- a model with a cache ----------------------------------------------------------


def norm(x: Array, scale: Array) -> Array:
    """`x` [..., D] over its root mean square, scaled [D], in its own type."""
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + 1e-5)
    return (y * scale).astype(x.dtype)


def turned(x: Array, positions: Array) -> Array:
    """`x` [B, J, ..., H], its halves turned into each other by positions [B, J]."""
    size = x.shape[-1]
    rates = BASE ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    angles = positions[..., None] * rates
    angles = jnp.expand_dims(angles, tuple(range(2, x.ndim - 1)))
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def look_back(q: Array, k: Array, v: Array, positions: Array) -> Array:
    """[B, J, K, G, H] of q like it on the cache k, v [B, P, K, H] up to positions."""
    scores = jnp.einsum("bjkgh,bpkh->bkgjp", q, k).astype(jnp.float32)
    is_past = jnp.arange(k.shape[1]) <= positions[..., None]
    scores = jnp.where(is_past[:, None, None], scores / math.sqrt(q.shape[-1]), -1e30)
    shares = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bkgjp,bpkh->bjkgh", shares, v)


def run(params: Tree, cache: Tree, tokens: Array, start: Array) -> tuple[Tree, Array]:
    """The cache with tokens [B, J] in it from start [B] on, and scores [B, J, V].

    cache: k, v [L, B, P, K, H], written where they are, layer after layer.
    """
    rows = jnp.arange(len(tokens))[:, None]
    positions = start[:, None] + jnp.arange(tokens.shape[1])

    def layer(i: Array, carry: Any) -> Any:
        x, k_cache, v_cache = carry
        weights = jax.tree.map(
            lambda w: lax.dynamic_index_in_dim(w, i, keepdims=False), params["layers"]
        )
        y = norm(x, weights["n1"])
        q = turned(jnp.einsum("bjd,dkgh->bjkgh", y, weights["q"]), positions)
        k = turned(jnp.einsum("bjd,dkh->bjkh", y, weights["k"]), positions)
        v = jnp.einsum("bjd,dkh->bjkh", y, weights["v"])
        k_cache = k_cache.at[i, rows, positions].set(k)
        v_cache = v_cache.at[i, rows, positions].set(v)
        mixed = look_back(q, k_cache[i], v_cache[i], positions)
        x = x + jnp.einsum("bjkgh,kghd->bjd", mixed, weights["o"])
        return x + swiglu(norm(x, weights["n2"]), weights), k_cache, v_cache

    carry = params["emb"][tokens], cache["k"], cache["v"]
    x, k, v = lax.fori_loop(0, cache["k"].shape[0], layer, carry)
    x = norm(x, params["norm"])
    out = params["out"] if "out" in params else params["emb"].T
    return {"k": k, "v": v}, (x @ out).astype(jnp.float32)


# -- to guess and to judge ---------------------------------------------------------


def guess(params: Tree, state: Tree, heat: Array, key: Array) -> Any:
    """The cache, guesses [B, J] at a heat [B], and the chances [B, J, V] they had.

    One step more than there are guesses: the cache is to know the last of them too.
    """

    def step(carry: Any, key: Array) -> Any:
        cache, token, position = carry
        cache, scores = run(params, cache, token[:, None], position)
        scores = scores[:, 0] / heat[:, None]
        token = jax.random.categorical(key, scores)
        return (cache, token, position + 1), (token, jax.nn.softmax(scores))

    keys = jax.random.split(key, GUESSES + 1)
    place = state["length"] - 1
    last = state["tokens"][jnp.arange(len(place)), place]
    start = state["small"], last, place
    (cache, _, _), (tokens, chances) = lax.scan(step, start, keys)
    return cache, tokens[:-1].T, jnp.swapaxes(chances[:-1], 0, 1)


def judged(wanted: Array, chances: Array, guesses: Array, key: Array) -> Any:
    """How many guesses [B, J] are taken, [B], and the token [B] that follows them.

    wanted [B, J + 1, V]: chances by the large model. Leviathan et al., 2023: what comes
    out is drawn as if by it alone.
    """
    keys = jax.random.split(key)
    large = jnp.take_along_axis(wanted[:, :-1], guesses[..., None], -1)[..., 0]
    small = jnp.take_along_axis(chances, guesses[..., None], -1)[..., 0]
    luck = jax.random.uniform(keys[0], guesses.shape)
    is_taken = luck * small < large
    count = jnp.sum(jnp.cumprod(is_taken.astype(jnp.int32), axis=1), axis=1)
    chances = jnp.pad(chances, ((0, 0), (0, 1), (0, 0)))
    left = jnp.maximum(wanted - chances, 0)
    left = jnp.take_along_axis(left, count[:, None, None], axis=1)[:, 0]
    follows = jax.random.categorical(keys[1], jnp.log(left + 1e-20))
    return count, follows.astype(jnp.int32)


def advance(state: Tree, large: Tree, small: Tree, requests: Tree) -> Tree:
    """Texts with one token more at least, of those that are not done."""
    key, guess_key, judge_key = jax.random.split(state["key"], 3)
    tokens, length = state["tokens"], state["length"]
    rows, heat = jnp.arange(len(length)), requests["heat"]
    small_cache, guesses, chances = guess(small, state, heat, guess_key)
    last = tokens[rows, length - 1]
    offered = jnp.concatenate([last[:, None], guesses], axis=1)
    large_cache, scores = run(large, state["large"], offered, length - 1)
    wanted = jax.nn.softmax(scores / heat[:, None, None])
    count, follows = judged(wanted, chances, guesses, judge_key)
    new = jnp.pad(guesses, ((0, 0), (0, 1))).at[rows, count].set(follows)
    places = jnp.arange(GUESSES + 1)
    is_new = (places <= count[:, None]) & ~state["is_done"][:, None]
    places = length[:, None] + places
    old = tokens[rows[:, None], places]
    tokens = tokens.at[rows[:, None], places].set(jnp.where(is_new, new, old))
    length = length + jnp.sum(is_new, axis=1)
    has_ended = jnp.any(is_new & (new == END), axis=1)
    return {
        "tokens": tokens, "length": length,
        "is_done": state["is_done"] | has_ended | (length >= requests["limit"]),
        "large": large_cache, "small": small_cache, "key": key,
    }  # fmt: skip


def speculative_step(
    state: Tree, large: Tree, small: Tree, requests: Tree
) -> tuple[Tree, Array]:
    """The state once all texts are done, or after so many rounds, and their number.

    tokens [B, P], of which length [B] are there; both caches lack the last of them.
    requests: heat [B] of chances, limit [B] of lengths.
    """

    def goes_on(carry: Any) -> Array:
        rounds, state = carry
        return (rounds < ROUNDS) & ~jnp.all(state["is_done"])

    def go_on(carry: Any) -> Any:
        rounds, state = carry
        return rounds + 1, advance(state, large, small, requests)

    start = jnp.zeros((), jnp.int32), state
    rounds, state = lax.while_loop(goes_on, go_on, start)
    return state, rounds


def model_shapes(layers: int, width: int, inner: int, head: int, vocab: int) -> Tree:
    """Parameters of `run`, of which the output's are the embedding's."""
    keys, groups = 8, width // (8 * head)
    dims = {
        "n1": (width,), "n2": (width,), "q": (width, keys, groups, head),
        "k": (width, keys, head), "v": (width, keys, head),
        "o": (keys, groups, head, width), "g": (width, inner), "u": (width, inner),
        "d": (inner, width),
    }  # fmt: skip
    stacked = {name: half(layers, *of_one) for name, of_one in dims.items()}
    return {"emb": half(vocab, width), "norm": half(width), "layers": stacked}


def speculative(batch: int = 128, places: int = 4096, vocab: int = 128_256) -> Target:
    """Four layers of Llama 3 of 8B, for which eight of that of 1B guess."""
    large = model_shapes(4, 4096, 14_336, 128, vocab)
    large["out"] = half(4096, vocab)
    small = model_shapes(8, 2048, 8192, 64, vocab)

    def cache(layers: int, head: int) -> Tree:
        return dict.fromkeys("kv", half(layers, batch, places, 8, head))

    state = {
        "tokens": whole(batch, places), "length": whole(batch),
        "is_done": jax.ShapeDtypeStruct((batch,), jnp.bool_),
        "large": cache(4, 128), "small": cache(8, 64),
        "key": jax.eval_shape(lambda: jax.random.key(0)),
    }  # fmt: skip
    requests = {"heat": shape(batch), "limit": whole(batch)}
    return speculative_step, (state, large, small, requests)

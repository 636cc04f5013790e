"""A step of generation: one token more of each sequence, from a cache.

Letters: B batch, S places of the cache, D features, N heads, K heads of keys, G = N / K,
H features of a head, V vocab.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.gpt import half
from benchmarks.strangers.language import rms_norm, rope, swiglu
from benchmarks.strangers.step import Target, Tree, whole

HEAD = 128
BEST = 50
TEMPERATURE = 0.8


def cached_attention(q: Array, k: Array, v: Array, position: Array) -> Array:
    """Mixed v [B, N, H] of one query q [B, K, G, H] on k, v [B, S, K, H] so far."""
    scores = jnp.einsum(
        "bkgh,bskh->bkgs", q, k, preferred_element_type=jnp.float32
    ) / math.sqrt(HEAD)
    is_seen = jnp.arange(k.shape[1]) <= position
    scores = jnp.where(is_seen, scores, -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bkgs,bskh->bkgh", weights, v)


def decode_layer(
    x: Array, weights: Tree, cache: Tree, position: Array
) -> tuple[Array, Tree]:
    """[B, 1, D] of x [B, 1, D], and k, v [B, S, K, H] with what is new at position."""
    split = (x.shape[0], 1, -1, HEAD)
    y = rms_norm(x, weights["n1"])
    q = rope((y @ weights["q"]).reshape(split), position[None])
    k = rope((y @ weights["k"]).reshape(split), position[None])
    v = (y @ weights["v"]).reshape(split)
    k = lax.dynamic_update_slice(cache["k"], k, (0, position, 0, 0))
    v = lax.dynamic_update_slice(cache["v"], v, (0, position, 0, 0))
    q = q.reshape(x.shape[0], k.shape[2], -1, HEAD)
    mixed = cached_attention(q, k, v, position)
    x = x + mixed.reshape(x.shape) @ weights["o"]
    return x + swiglu(rms_norm(x, weights["n2"]), weights), {"k": k, "v": v}


def sampled(scores: Array, key: Array) -> Array:
    """A token [B] of the 50 best of scores [B, V]."""
    best, tokens = lax.top_k(scores.astype(jnp.float32), BEST)
    choice = jax.random.categorical(key, best / TEMPERATURE, axis=-1)
    return jnp.take_along_axis(tokens, choice[:, None], axis=-1)[:, 0]


def decode_step(
    cache: list[Tree], params: Tree, tokens: Array, position: Array, key: Array
) -> tuple[Any, Array]:
    """The cache with one place more taken, and the tokens [B] after `tokens` [B]."""
    x = params["emb"][tokens][:, None]
    taken = []
    for weights, layer_cache in zip(params["layers"], cache, strict=True):
        x, layer_cache = decode_layer(x, weights, layer_cache, position)
        taken.append(layer_cache)
    scores = rms_norm(x[:, 0], params["n"]) @ params["out"]
    return taken, sampled(scores, key)


def decode(
    batch: int = 64, places: int = 4096, width: int = 2048, vocab: int = 32_000
) -> Target:
    """Llama with 8 heads of keys and values: 16 layers, all in bfloat16."""
    inner, keys = 11 * width // 4, 8 * HEAD
    layer = {
        "n1": half(width), "n2": half(width),
        "q": half(width, width), "o": half(width, width),
        "k": half(width, keys), "v": half(width, keys),
        "g": half(width, inner), "u": half(width, inner), "d": half(inner, width),
    }  # fmt: skip
    params = {
        "emb": half(vocab, width), "layers": [layer] * 16,
        "n": half(width), "out": half(width, vocab),
    }  # fmt: skip
    place = half(batch, places, 8, HEAD)
    cache = [{"k": place, "v": place}] * 16
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    return decode_step, (cache, params, whole(batch), whole(), key)

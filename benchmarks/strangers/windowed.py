"""A decoder most of whose layers look back over a window only, trained in bfloat16.

Parameters are two bytes wide; the optimizer keeps the masters of four.

Letters: B batch, S sequence, W positions of a window, C = S / W windows, D features,
N heads, K heads of keys, G = N / K, H features of a head, V vocab, P periods of layers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name

from benchmarks.strangers.gpt import half
from benchmarks.strangers.step import Target, Tree, shape, whole

HEAD = 256
WINDOW = 512
LOCALS = 5  # layers that see a window, for each that sees all
NEAR_BASE, FAR_BASE = 1e4, 1e6
SCORE_CAP, LOGIT_CAP = 50.0, 30.0
Z_LOSS = 1e-4
NAMES = "mixed", "gated"

# -- the model ---------------------------------------------------------------------


def capped(x: Array, cap: float) -> Array:
    """`x` squeezed smoothly into -cap to cap."""
    return cap * jnp.tanh(x / cap)


def norm(x: Array, scale: Array) -> Array:
    """`x` [..., D] over its root mean square, times 1 + scale [D], in its own type."""
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-6)
    return (y * (1 + scale.astype(jnp.float32))).astype(x.dtype)


def turned(x: Array, base: float) -> Array:
    """`x` [B, S, N, H] with its halves turned into each other by position."""
    rates = base ** (-jnp.arange(0, HEAD, 2, dtype=jnp.float32) / HEAD)
    angles = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None, None] * rates
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def shares(scores: Array, is_seen: Array) -> Array:
    """Shares of capped scores [..., Q, S] where is_seen [Q, S], in bfloat16."""
    scores = capped(scores.astype(jnp.float32), SCORE_CAP)
    return jax.nn.softmax(jnp.where(is_seen, scores, -2e38)).astype(jnp.bfloat16)


def with_previous(x: Array) -> Array:
    """Windows [B, C, 2 W, K, H] of x [B, C, W, K, H], each after the one before it."""
    before = jnp.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0), (0, 0)))
    return jnp.concatenate([before, x], axis=2)


def local_mix(q: Array, k: Array, v: Array) -> Array:
    """[B, S, K, G, H] of q like it and k, v [B, S, K, H]: W positions back at most."""
    batch, length, *split = q.shape
    q = q.reshape(batch, -1, WINDOW, *split)
    k, v = (with_previous(y.reshape(batch, -1, WINDOW, *y.shape[2:])) for y in (k, v))
    back = jnp.arange(WINDOW)[:, None] + WINDOW - jnp.arange(2 * WINDOW)
    is_near = (back >= 0) & (back < WINDOW)
    is_real = jnp.arange(2 * WINDOW) >= WINDOW  # the first window has none before it
    is_first = jnp.arange(q.shape[1])[:, None, None, None, None] == 0
    scores = jnp.einsum("bcqkgh,bcskh->bckgqs", q, k)
    weights = shares(scores, is_near & (is_real | ~is_first))
    mixed = jnp.einsum("bckgqs,bcskh->bcqkgh", weights, v)
    return mixed.reshape(batch, length, *split)


def global_mix(q: Array, k: Array, v: Array) -> Array:
    """[B, S, K, G, H] of q like it and k, v [B, S, K, H]: all positions so far."""
    is_past = jnp.tril(jnp.ones((q.shape[1], q.shape[1]), bool))
    weights = shares(jnp.einsum("bqkgh,bskh->bkgqs", q, k), is_past)
    return jnp.einsum("bkgqs,bskh->bqkgh", weights, v)


def layer(x: Array, weights: Tree, is_local: bool) -> Array:
    """[B, S, D] of x [B, S, D]; a norm before and behind each half."""
    base = NEAR_BASE if is_local else FAR_BASE
    y = norm(x, weights["before_attention"])
    q = jnp.einsum("bsd,dnh->bsnh", y, weights["q"])
    k, v = jnp.einsum("bsd,ndkh->nbskh", y, weights["kv"])
    q = turned(norm(q, weights["q_norm"]), base) * HEAD**-0.5
    k = turned(norm(k, weights["k_norm"]), base)
    q = q.reshape(*k.shape[:3], -1, HEAD)
    mixed = (local_mix if is_local else global_mix)(q, k, v)
    mixed = checkpoint_name(mixed.reshape(*x.shape[:2], -1, HEAD), "mixed")
    y = jnp.einsum("bsnh,nhd->bsd", mixed, weights["o"])
    x = x + norm(y, weights["after_attention"])
    y = norm(x, weights["before_mlp"])
    gate, up = jnp.einsum("bsd,ndf->nbsf", y, weights["gate_up"])
    gated = checkpoint_name(jax.nn.gelu(gate, approximate=True) * up, "gated")
    return x + norm(gated @ weights["down"], weights["after_mlp"])


def gemma_loss(params: Tree, batch: Tree) -> tuple[Array, Tree]:
    """Mean cross-entropy of the tokens after each of tokens [B, S + 1], not of 0."""
    tokens, targets = batch["tokens"][:, :-1], batch["tokens"][:, 1:]
    width = params["emb"].shape[1]
    x = params["emb"][tokens] * jnp.asarray(width**0.5, jnp.bfloat16)
    policy = jax.checkpoint_policies.save_only_these_names(*NAMES)
    kept = jax.checkpoint(layer, policy=policy, static_argnums=2)

    def local(x: Array, weights: Tree) -> tuple[Array, None]:
        return kept(x, weights, True), None

    def period(x: Array, weights: Tree) -> tuple[Array, None]:
        x, _ = lax.scan(local, x, weights["local"])
        return kept(x, weights["global"], False), None

    x, _ = lax.scan(period, x, params["periods"])
    logits = jnp.einsum(
        "bsd,vd->bsv", norm(x, params["final"]), params["emb"],
        preferred_element_type=jnp.float32,
    )  # fmt: skip
    logits = capped(logits, LOGIT_CAP)
    total = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    counted = (targets > 0).astype(jnp.float32)
    num_targets = jnp.maximum(jnp.sum(counted), 1)
    loss = jnp.sum((total - chosen) * counted) / num_targets
    z_loss = Z_LOSS * jnp.sum(jnp.square(total) * counted) / num_targets
    return loss + z_loss, {"loss": loss, "z_loss": z_loss}


# -- AdamW on masters --------------------------------------------------------------


def gemma_step(state: Tree, batch: Tree) -> tuple[Tree, Tree]:
    """New state, and what is told of the step; params are the masters, rounded."""
    loss_fn = jax.value_and_grad(gemma_loss, has_aux=True)
    (_, told), gradients = loss_fn(state["params"], batch)
    gradients = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradients)))
    scale = jnp.minimum(1.0, 1.0 / (norm + 1e-9))
    step = state["step"] + 1
    time = step.astype(jnp.float32)
    done = jnp.clip((time - 1e3) / 9.9e4, 0, 1)
    rate = 3e-4 * jnp.minimum(time / 1e3, 0.55 + 0.45 * jnp.cos(jnp.pi * done))

    def update(master: Array, gradient: Array, mean: Array, square: Array) -> Any:
        gradient = gradient * scale
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.95 * square + 0.05 * gradient**2
        move = mean / (1 - 0.9**time) / (jnp.sqrt(square / (1 - 0.95**time)) + 1e-8)
        return master - rate * (move + 0.1 * master), mean, square

    new = jax.tree.map(update, state["master"], gradients, state["mu"], state["nu"])
    outer = jax.tree.structure(gradients)
    master, mu, nu = jax.tree.transpose(outer, jax.tree.structure((0, 0, 0)), new)
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), master)
    state = {"params": params, "master": master, "mu": mu, "nu": nu, "step": step}
    return state, {**told, "norm": norm}


def gemma(
    batch: int = 8, length: int = 2048, width: int = 1152, vocab: int = 262_144
) -> Target:
    """Gemma 3 of 1B (2025), 12 layers of 26, with the caps of Gemma 2 (2024)."""
    heads, keys, inner, periods = 4, 1, 6 * width, 2

    def stack(*stacked: int) -> Tree:
        dims = {
            "before_attention": (width,), "after_attention": (width,),
            "before_mlp": (width,), "after_mlp": (width,),
            "q_norm": (HEAD,), "k_norm": (HEAD,), "q": (width, heads, HEAD),
            "kv": (2, width, keys, HEAD), "o": (heads, HEAD, width),
            "gate_up": (2, width, inner), "down": (inner, width),
        }  # fmt: skip
        return {name: half(*stacked, *of_one) for name, of_one in dims.items()}

    params = {
        "emb": half(vocab, width), "final": half(width),
        "periods": {"local": stack(periods, LOCALS), "global": stack(periods)},
    }  # fmt: skip
    master = jax.tree.map(lambda x: shape(*x.shape), params)
    state = {
        "params": params, "master": master, "mu": master, "nu": master, "step": whole(),
    }  # fmt: skip
    return gemma_step, (state, {"tokens": whole(batch, length + 1)})

"""Language models of two families, and what the others of this folder share.

Letters: B batch, S sequence, D features, N heads, H features of a head, R rank of a
latent, E experts, K choices of a token, C capacity of an expert, V vocab, L layers.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.step import (
    Target,
    Tree,
    bfloat16,
    shape,
    training,
    whole,
)

# -- what they share ---------------------------------------------------------------


def rms_norm(x: Array, scale: Array) -> Array:
    """`x` [..., D] over its root mean square, scaled [D], in its own type."""
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(jnp.square(y), -1, keepdims=True) + 1e-6)
    return (y * scale).astype(x.dtype)


def rope(x: Array, positions: Array) -> Array:
    """`x` [B, S, N, H], its halves turned into each other by positions [S]."""
    half = x.shape[-1] // 2
    rates = 10_000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = positions.astype(jnp.float32)[:, None, None] * rates
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def causal_attention(q: Array, k: Array, v: Array) -> Array:
    """Mixed v [B, S, N, H'] of q, k [B, S, N, H], each position on those up to it."""
    length = q.shape[1]
    scores = jnp.einsum("bqnh,bknh->bnqk", q, k).astype(jnp.float32)
    mask = jnp.tril(jnp.ones((length, length), dtype=bool))
    scores = jnp.where(mask, scores / math.sqrt(q.shape[-1]), -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bnqk,bknh->bqnh", weights, v)


def cross_entropy(scores: Array, labels: Array) -> Array:
    """That of each label [B, S] in scores [B, S, V]: [B, S] in float32."""
    scores = scores.astype(jnp.float32)
    chosen = jnp.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(scores, axis=-1) - chosen


def swiglu(x: Array, weights: Tree) -> Array:
    """[..., D] of x [..., D]; g, u, d: the gate, the way up and down."""
    return (jax.nn.silu(x @ weights["g"]) * (x @ weights["u"])) @ weights["d"]


def swiglu_shapes(width: int, inner: int) -> Tree:
    """Parameters of `swiglu`."""
    return {
        "g": shape(width, inner), "u": shape(width, inner), "d": shape(inner, width),
    }  # fmt: skip


# -- a mixture of experts whose attention keeps latents ----------------------------

PLAIN = 64  # features of a head without positions, and of its values
TURNED = 32  # features of a head with positions; their keys are shared by all heads
CHOICES = 2
CAPACITY = 1.25
BALANCE = 0.01


def latent_attention(x: Array, weights: Tree) -> Array:
    """[B, S, D] of x [B, S, D].

    qa, qb: queries down to R and up; kva, kvb: keys and values; qn, kvn: norms between.
    """
    q = rms_norm(x @ weights["qa"], weights["qn"])
    q = jnp.einsum("bsr,rnh->bsnh", q, weights["qb"])
    plain_q, turned_q = jnp.split(q, [PLAIN], -1)
    latent, turned_k = jnp.split(x @ weights["kva"], [weights["kvn"].shape[0]], -1)
    latent = rms_norm(latent, weights["kvn"])
    kv = jnp.einsum("bsr,rnh->bsnh", latent, weights["kvb"])
    plain_k, v = jnp.split(kv, [PLAIN], -1)
    positions = jnp.arange(x.shape[1])
    turned_q = rope(turned_q, positions)
    turned_k = rope(turned_k[:, :, None], positions)
    turned_k = jnp.broadcast_to(turned_k, turned_q.shape)
    q = jnp.concatenate([plain_q, turned_q], -1)
    k = jnp.concatenate([plain_k, turned_k], -1)
    return jnp.einsum("bsnh,nhd->bsd", causal_attention(q, k, v), weights["o"])


def routed(x: Array, router: Array) -> tuple[Array, Array]:
    """Shares [B, S, E, C] of each token in each place of an expert, and the balance.

    First choices are placed before second ones; who finds no place is left out.
    """
    batch, length, _ = x.shape
    experts = router.shape[-1]
    capacity = math.ceil(CAPACITY * CHOICES * length / experts)
    chances = jax.nn.softmax(x.astype(jnp.float32) @ router, -1)
    gates, chosen = lax.top_k(chances, CHOICES)
    gates = gates / jnp.sum(gates, -1, keepdims=True)
    chosen = jax.nn.one_hot(chosen, experts)
    ordered = jnp.swapaxes(chosen, 1, 2).reshape(batch, -1, experts)
    places = (jnp.cumsum(ordered, 1) - ordered).reshape(batch, CHOICES, length, -1)
    places = jnp.sum(jnp.swapaxes(places, 1, 2) * chosen, -1).astype(jnp.int32)
    places = jax.nn.one_hot(places, capacity)
    combine = jnp.einsum("bsk,bske,bskc->bsec", gates, chosen, places)
    load = jnp.mean(chosen[:, :, 0], (0, 1))
    return combine, experts * jnp.sum(load * jnp.mean(chances, (0, 1)))


def mixture(x: Array, weights: Tree, router: Array) -> tuple[Array, Array]:
    """[B, S, D] of x [B, S, D], and the balance; sh: the expert of all tokens."""
    combine, balance = routed(x, router)
    combine = bfloat16(combine)
    dispatch = (combine > 0).astype(jnp.bfloat16)
    inputs = jnp.einsum("bsec,bsd->ebcd", dispatch, x)
    gate = jnp.einsum("ebcd,edf->ebcf", inputs, weights["g"])
    up = jnp.einsum("ebcd,edf->ebcf", inputs, weights["u"])
    outputs = jnp.einsum("ebcf,efd->ebcd", jax.nn.silu(gate) * up, weights["d"])
    y = jnp.einsum("bsec,ebcd->bsd", combine, outputs)
    return y + swiglu(x, weights["sh"]), balance


def deepseek_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of tokens y [B, S] after x [B, S], with the balance.

    The first layer has an MLP, all others experts.
    """
    x = bfloat16(params["emb"][batch["x"]])
    balance = jnp.zeros(())
    for layer in params["layers"]:
        weights = bfloat16(layer)
        x = x + latent_attention(rms_norm(x, layer["n1"]), weights)
        y = rms_norm(x, layer["n2"])
        if "router" in layer:
            y, unbalanced = mixture(y, weights["moe"], layer["router"])
            balance = balance + unbalanced
        else:
            y = swiglu(y, weights["mlp"])
        x = x + y
    scores = rms_norm(x, params["n"]) @ bfloat16(params["out"])
    return jnp.mean(cross_entropy(scores, batch["y"])) + BALANCE * balance


def deepseek_layer(width: int, inner: int, experts: int) -> Tree:
    """Parameters of a layer of so many experts, of an MLP where there are none."""
    heads, rank = width // PLAIN, width // 4
    layer = {
        "n1": shape(width), "n2": shape(width),
        "qa": shape(width, rank), "qn": shape(rank),
        "qb": shape(rank, heads, PLAIN + TURNED),
        "kva": shape(width, rank + TURNED), "kvn": shape(rank),
        "kvb": shape(rank, heads, 2 * PLAIN), "o": shape(heads, PLAIN, width),
    }  # fmt: skip
    if not experts:
        return {**layer, "mlp": swiglu_shapes(width, 4 * inner)}
    moe = {
        "g": shape(experts, width, inner), "u": shape(experts, width, inner),
        "d": shape(experts, inner, width), "sh": swiglu_shapes(width, inner),
    }  # fmt: skip
    return {**layer, "router": shape(width, experts), "moe": moe}


def deepseek(
    batch: int = 32, length: int = 1024, width: int = 1024, vocab: int = 32_000
) -> Target:
    """DeepSeek-AI, 2024: six layers, sixteen experts and a shared one."""
    experts = (0, 16, 16, 16, 16, 16)
    params = {
        "emb": shape(vocab, width), "n": shape(width), "out": shape(width, vocab),
        "layers": [deepseek_layer(width, width // 2, count) for count in experts],
    }  # fmt: skip
    tokens = whole(batch, length)
    return training(deepseek_loss, params, {"x": tokens, "y": tokens})


# -- Llama: a scan of layers in a scan of microbatches -----------------------------

MICROBATCHES = 4
HEAD = 64
KEY_HEADS = 4
PEAK_RATE = 1e-3
WARMUP, STEPS = 10, 10_000


def llama_layer(x: Array, weights: Tree) -> tuple[Array, None]:
    """[B, S, D] of x [B, S, D]; each head of keys serves several of queries."""
    split = (*x.shape[:2], -1, HEAD)
    positions = jnp.arange(x.shape[1])
    scales, weights = weights["n"], bfloat16(weights)
    y = rms_norm(x, scales[0])
    q = rope((y @ weights["q"]).reshape(split), positions)
    k = rope((y @ weights["k"]).reshape(split), positions)
    v = (y @ weights["v"]).reshape(split)
    groups = q.shape[2] // k.shape[2]
    k, v = jnp.repeat(k, groups, axis=2), jnp.repeat(v, groups, axis=2)
    x = x + causal_attention(q, k, v).reshape(x.shape) @ weights["o"]
    return x + swiglu(rms_norm(x, scales[1]), weights), None


def llama_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of the tokens y [B, S] after those of x [B, S]."""
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    layer = jax.checkpoint(llama_layer, policy=policy)
    x = bfloat16(params["emb"])[batch["x"]]
    x, _ = lax.scan(layer, x, params["layers"])
    scores = rms_norm(x, params["n"]) @ bfloat16(params["out"])
    return jnp.mean(cross_entropy(scores, batch["y"]))


def clipped(gradients: Any, limit: float) -> Any:
    """Gradients whose norm, over all of them, is at most `limit`."""
    squares = [jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradients)]
    scale = jnp.minimum(1.0, limit / (jnp.sqrt(sum(squares)) + 1e-6))
    return jax.tree.map(lambda g: g * scale, gradients)


def adamw(params: Any, gradients: Any, state: Tree) -> tuple[Any, Tree]:
    """New parameters and state: means, squares and count; a warm-up, then a cosine."""
    count = state["count"] + 1
    means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], gradients)
    squares = jax.tree.map(
        lambda s, g: 0.95 * s + 0.05 * jnp.square(g), state["nu"], gradients
    )
    done = jnp.clip((count - WARMUP) / (STEPS - WARMUP), 0.0, 1.0)
    rate = PEAK_RATE * 0.5 * (1 + jnp.cos(jnp.pi * done))
    rate = rate * jnp.minimum(1.0, count / WARMUP)
    first, second = 1 - 0.9**count, 1 - 0.95**count

    def updated(param: Array, mean: Array, square: Array) -> Array:
        step = (mean / first) / (jnp.sqrt(square / second) + 1e-8)
        return param - rate * (step + 0.1 * param)

    params = jax.tree.map(updated, params, means, squares)
    return params, {"mu": means, "nu": squares, "count": count}


def llama_step(state: Any, batch: Tree) -> Any:
    """New state and the loss of x, y [B, S], a quarter of the batch at a time."""
    params, optimizer = state

    def cut(x: Array) -> Array:
        return jnp.swapaxes(x.reshape(-1, MICROBATCHES, *x.shape[1:]), 0, 1)

    def accumulate(carry: Any, part: Tree) -> tuple[Any, None]:
        total, gradients = carry
        loss, more = jax.value_and_grad(llama_loss)(params, part)
        return (total + loss, jax.tree.map(jnp.add, gradients, more)), None

    start = jnp.zeros(()), jax.tree.map(jnp.zeros_like, params)
    sums, _ = lax.scan(accumulate, start, jax.tree.map(cut, batch))
    loss, gradients = jax.tree.map(lambda x: x / MICROBATCHES, sums)
    return adamw(params, clipped(gradients, 1.0), optimizer), loss


def llama_scan(
    batch: int = 256, length: int = 1024, width: int = 1024, vocab: int = 32_000
) -> Target:
    """Touvron et al., 2023: 16 layers, their products kept for the way back."""
    layers, inner, keys = 16, 11 * width // 4, KEY_HEADS * HEAD
    stacked = {
        "n": shape(layers, 2, width),
        "q": shape(layers, width, width), "o": shape(layers, width, width),
        "k": shape(layers, width, keys), "v": shape(layers, width, keys),
        "g": shape(layers, width, inner), "u": shape(layers, width, inner),
        "d": shape(layers, inner, width),
    }  # fmt: skip
    params = {
        "emb": shape(vocab, width), "layers": stacked,
        "n": shape(width), "out": shape(width, vocab),
    }  # fmt: skip
    optimizer = {"mu": params, "nu": params, "count": whole()}
    tokens = whole(batch, length)
    return llama_step, ((params, optimizer), {"x": tokens, "y": tokens})

"""Strangers that attend.

Letters: B batch, S sequence, D features, N heads, H features of a head, V vocab.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.step import (
    Target,
    Tree,
    bfloat16,
    shape,
    standardized,
    surprise,
    training,
    whole,
)


def heads(qkv: Array, features: int) -> list[Array]:
    """Queries, keys and values [B, S, N, H] of qkv [B, S, 3 N H]."""
    split = jnp.split(qkv, 3, -1)
    return [x.reshape(*x.shape[:2], -1, features) for x in split]


def attention(qkv: Array, features: int = 64) -> Array:
    """Attention of all positions on all: [B, S, N H] of qkv [B, S, 3 N H]."""
    q, k, v = heads(qkv, features)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32)
    weights = jax.nn.softmax(scores / math.sqrt(features), -1).astype(v.dtype)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    return mixed.reshape(*mixed.shape[:2], -1)


# -- a diffusion transformer: blocks in a scan, made again backward ----------------


def modulated(x: Array, scale: Array, shift: Array) -> Array:
    """`x` [B, S, D], standardized, scaled and shifted [B, D]."""
    return bfloat16(standardized(x) * (1 + scale[:, None]) + shift[:, None])


def dit_block(x: Array, weights: Tree, condition: Array) -> Array:
    """[B, S, D] of x [B, S, D] and what it is conditioned on [B, D]."""
    weights = bfloat16(weights)
    adapted = jax.nn.silu(condition) @ weights["ada"]
    scale_1, shift_1, gate_1, scale_2, shift_2, gate_2 = jnp.split(adapted, 6, -1)
    mixed = attention(modulated(x, scale_1, shift_1) @ weights["qkv"]) @ weights["o"]
    x = x + gate_1[:, None] * mixed
    y = modulated(x, scale_2, shift_2)
    return x + gate_2[:, None] * (jax.nn.gelu(y @ weights["up"]) @ weights["down"])


def dit_loss(params: Tree, batch: Tree) -> Array:
    """Mean squared error of the noise eps in patches x [B, S, 16] at times t [B].

    t1, t2: the MLP of times; blk: blocks, in which ada makes scales, shifts and gates.
    """
    patches, time, noise = batch["x"], batch["t"], batch["eps"]
    rates = jnp.exp(-jnp.arange(128) / 128 * 9.2)
    waves = [jnp.sin(time[:, None] * rates), jnp.cos(time[:, None] * rates)]
    embedded = jnp.concatenate(waves, -1)
    condition = bfloat16(jax.nn.silu(embedded @ params["t1"]) @ params["t2"])
    x = bfloat16(patches @ params["inp"] + params["pos"])

    @jax.checkpoint
    def layer(x: Array, weights: Tree) -> tuple[Array, None]:
        return dit_block(x, weights, condition), None

    x, _ = lax.scan(layer, x, params["blk"])
    return jnp.mean((standardized(x) @ params["out"] - noise) ** 2)


def dit(batch: int = 256, patches: int = 256, width: int = 1024) -> Target:
    """Peebles and Xie, 2023: 12 blocks, in bfloat16 from float32 parameters."""
    blocks = {
        "ada": shape(12, width, 6 * width),
        "qkv": shape(12, width, 3 * width), "o": shape(12, width, width),
        "up": shape(12, width, 4 * width), "down": shape(12, 4 * width, width),
    }  # fmt: skip
    params = {
        "inp": shape(16, width), "pos": shape(patches, width), "blk": blocks,
        "t1": shape(256, width), "t2": shape(width, width), "out": shape(width, 16),
    }  # fmt: skip
    images = shape(batch, patches, 16)
    return training(dit_loss, params, {"x": images, "t": shape(batch), "eps": images})


# -- a decoder whose heads share keys and values: layers in a list -----------------


def rms_norm(x: Array, scale: Array) -> Array:
    """`x` [..., D] divided by its root mean square over D, then scaled [D]."""
    x = x.astype(jnp.float32)
    inverse = lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
    return bfloat16(x * inverse * scale)


def rotated(x: Array) -> Array:
    """`x` [B, S, N, H] turned by its position, two neighbours of H at a time."""
    _, length, _, features = x.shape
    rates = 10000 ** (-jnp.arange(0, features, 2) / features)
    angles = jnp.arange(length)[:, None] * rates
    cos = jnp.cos(angles)[:, None].astype(x.dtype)
    sin = jnp.sin(angles)[:, None].astype(x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)


def grouped_attention(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of q [B, S, N, H] on k, v [B, S, K, H], N / K heads on each."""
    length, features = q.shape[1], q.shape[3]
    groups = q.reshape(*k.shape[:3], -1, features)
    scores = jnp.einsum(
        "bqkgd,bskd->bkgqs", groups, k, preferred_element_type=jnp.float32
    ) / math.sqrt(features)
    seen = jnp.tril(jnp.ones((length, length), bool))
    weights = bfloat16(jax.nn.softmax(jnp.where(seen, scores, -1e30), -1))
    return jnp.einsum("bkgqs,bskd->bqkgd", weights, v).reshape(q.shape)


@jax.checkpoint
def gqa_layer(x: Array, weights: Tree) -> Array:
    """[B, S, D] of x [B, S, D]; g, u, d: the MLP's gate, its way up and down."""
    weights = bfloat16(weights)
    y = rms_norm(x, weights["n1"])
    q = rotated(jnp.einsum("btd,dhk->bthk", y, weights["q"]))
    k = rotated(jnp.einsum("btd,dhk->bthk", y, weights["k"]))
    v = jnp.einsum("btd,dhk->bthk", y, weights["v"])
    x = x + jnp.einsum("bthk,hkd->btd", grouped_attention(q, k, v), weights["o"])
    y = rms_norm(x, weights["n2"])
    return x + (jax.nn.silu(y @ weights["g"]) * (y @ weights["u"])) @ weights["d"]


def gqa_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of the tokens y [B, S] after those of x [B, S]."""
    x = bfloat16(params["emb"][batch["x"]])
    for weights in params["layers"]:
        x = gqa_layer(x, weights)
    scores = rms_norm(x, params["n"]) @ bfloat16(params["out"])
    scores = scores.astype(jnp.float32)
    total = jax.nn.logsumexp(scores, -1)
    chosen = jnp.take_along_axis(scores, batch["y"][..., None], -1)
    return jnp.mean(total - chosen[..., 0])


def gqa(batch: int = 32, length: int = 2048, width: int = 2048) -> Target:
    """Ainslie et al., 2023: 16 heads on 4 keys; rotary positions and a gated MLP."""
    vocab, inner, head = 32_000, 5632, 128
    layer = {
        "q": shape(width, 16, head), "o": shape(16, head, width),
        "k": shape(width, 4, head), "v": shape(width, 4, head),
        "g": shape(width, inner), "u": shape(width, inner), "d": shape(inner, width),
        "n1": shape(width), "n2": shape(width),
    }  # fmt: skip
    params = {
        "emb": shape(vocab, width), "layers": [layer] * 4,
        "n": shape(width), "out": shape(width, vocab),
    }  # fmt: skip
    tokens = whole(batch, length)
    return training(gqa_loss, params, {"x": tokens, "y": tokens})


# -- a recognizer of speech: attention, convolution, two MLPs ----------------------


def affine_norm(x: Array, weights: Tree, i: int) -> Array:
    """`x` [B, S, D] with mean 0 and variance 1 over D, then the `i`th of the scales."""
    scale, shift = weights["s"][i], weights["b"][i]
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


def convolved(x: Array, weights: Tree) -> Array:
    """[B, S, D] of x [B, S, D]: gated, mixed over 15 steps, a norm over B and S.

    pw1, pw2: products at a step; dw: a kernel of each feature alone.
    """
    x = jax.nn.glu(x @ weights["pw1"])
    conv = partial(lax.conv_general_dilated, dimension_numbers=("NWC", "WIO", "NWC"))
    x = conv(x, weights["dw"], (1,), "SAME", feature_group_count=x.shape[-1])
    mean, variance = x.mean((0, 1)), x.var((0, 1))
    return jax.nn.silu((x - mean) * lax.rsqrt(variance + 1e-5)) @ weights["pw2"]


def conformer_layer(x: Array, weights: Tree) -> Array:
    """[B, S, D] of x [B, S, D]; f1, f2 and g1, g2: an MLP at each end."""
    y = jax.nn.silu(affine_norm(x, weights, 0) @ weights["f1"])
    x = x + 0.5 * (y @ weights["f2"])
    y = attention(affine_norm(x, weights, 1) @ weights["qkv"])
    x = x + y @ weights["o"]
    x = x + convolved(affine_norm(x, weights, 2), weights)
    y = jax.nn.silu(affine_norm(x, weights, 3) @ weights["g1"])
    x = x + 0.5 * (y @ weights["g2"])
    return affine_norm(x, weights, 4)


def conformer_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of the labels y [B, S] of frames x [B, S, 80]."""
    x = batch["x"] @ params["inp"]
    for weights in params["layers"]:
        x = conformer_layer(x, weights)
    return surprise(jax.nn.log_softmax(x @ params["out"]), batch["y"])


def conformer(batch: int = 128, length: int = 1024, width: int = 512) -> Target:
    """Gulati et al., 2020: 6 layers, all in float32 and kept for the way back."""
    layer = {
        "f1": shape(width, 4 * width), "f2": shape(4 * width, width),
        "qkv": shape(width, 3 * width), "o": shape(width, width),
        "pw1": shape(width, 2 * width), "dw": shape(15, 1, width),
        "pw2": shape(width, width), "s": shape(5, width), "b": shape(5, width),
        "g1": shape(width, 4 * width), "g2": shape(4 * width, width),
    }  # fmt: skip
    params = {"inp": shape(80, width), "layers": [layer] * 6, "out": shape(width, 1024)}
    frames = {"x": shape(batch, length, 80), "y": whole(batch, length)}
    return training(conformer_loss, params, frames)


# -- a decoder that attends to a chunk at a time: a scan in a scan -----------------

CHUNK = 512


def chunked_attention(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of [B, S, N, H], its softmax carried on from chunk to chunk."""
    batch, length, num_heads, features = q.shape
    chunks = length // CHUNK
    cut = (batch, chunks, CHUNK, num_heads, features)
    keys, values = (jnp.moveaxis(x.reshape(cut), 1, 0) for x in (k, v))
    position = jnp.arange(length)

    @jax.checkpoint
    def attend(carry: Any, chunk: Any) -> tuple[Any, None]:
        largest, total, mixed = carry
        k, v, i = chunk
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32)
        scores = scores / math.sqrt(features)
        seen = position[:, None] >= i * CHUNK + jnp.arange(CHUNK)
        scores = jnp.where(seen, scores, -1e30)
        larger = jnp.maximum(largest, scores.max(-1))
        weights = jnp.exp(scores - larger[..., None])
        fade = jnp.exp(largest - larger)
        total = total * fade + weights.sum(-1)
        mixed = mixed * fade[..., None]
        mixed = mixed + jnp.einsum("bhqk,bkhd->bhqd", bfloat16(weights), v)
        return (larger, total, mixed), None

    zero = jnp.zeros((batch, num_heads, length))
    start = (zero - 1e30, zero, jnp.zeros((*zero.shape, features)))
    carry, _ = lax.scan(attend, start, (keys, values, jnp.arange(chunks)))
    _, total, mixed = carry
    mixed = jnp.moveaxis(mixed / total[..., None], 1, 2)
    return bfloat16(mixed.reshape(batch, length, -1))


def plain_norm(x: Array) -> Array:
    """`x` [..., D] with mean 0 and variance 1 over D."""
    x = x.astype(jnp.float32)
    centred = x - x.mean(-1, keepdims=True)
    return bfloat16(centred * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5))


def chunked_layer(x: Array, weights: Tree) -> tuple[Array, None]:
    """[B, S, D] of x [B, S, D]; u, d: the MLP's way up and down."""
    weights = bfloat16(weights)
    q, k, v = heads(plain_norm(x) @ weights["qkv"], 128)
    x = x + chunked_attention(q, k, v) @ weights["o"]
    return x + jax.nn.gelu(plain_norm(x) @ weights["u"]) @ weights["d"], None


def chunked_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of the tokens y [B, S] after those of x [B, S]."""
    x = bfloat16(params["e"][batch["x"]])  # the embedding is the output's as well
    x, _ = lax.scan(chunked_layer, x, params["l"])
    scores = (plain_norm(x) @ bfloat16(params["e"].T)).astype(jnp.float32)
    return surprise(jax.nn.log_softmax(scores), batch["y"])


def chunked(batch: int = 16, length: int = 4096, width: int = 1024) -> Target:
    """Rabe and Staats, 2021: only chunks are made again backward, layers are kept."""
    layers = {
        "qkv": shape(4, width, 3 * width), "o": shape(4, width, width),
        "u": shape(4, width, 4 * width), "d": shape(4, 4 * width, width),
    }  # fmt: skip
    params = {"e": shape(32_768, width), "l": layers}
    tokens = whole(batch, length)
    return training(chunked_loss, params, {"x": tokens, "y": tokens})

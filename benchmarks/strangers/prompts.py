"""The first step of serving: whole prompts are read, and a cache is filled.

Letters: B batch, S positions of a prompt, P places of the cache, D features, K heads of
keys, G heads of queries for each, H features of a head, C a chunk of queries, V vocab,
L layers.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.gpt import half
from benchmarks.strangers.step import Target, Tree, whole

HEAD = 128
KEY_HEADS = 8
CHUNK = 512
BASE = 500_000.0


def norm(x: Array, scale: Array) -> Array:
    """`x` [..., D] over its root mean square, rounded, then scaled [D]."""
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(y**2, axis=-1, keepdims=True) + 1e-5)
    return y.astype(x.dtype) * scale


def turned(x: Array, cos: Array, sin: Array) -> Array:
    """`x` [B, S, N, H] turned, two halves of H into each other; cos, sin [S, H / 2]."""
    cos, sin = cos[:, None], sin[:, None]
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def prompt_attention(q: Array, k: Array, v: Array, lengths: Array) -> Array:
    """[B, S, K G H] of q [B, S, K, G, H], k, v [B, S, K, H], a chunk of q at a time.

    lengths [B]: of the prompts; what stands behind is not looked at.
    """
    batch, length, *split = q.shape
    chunks = q.reshape(batch, -1, CHUNK, *split)
    places = jnp.arange(length)
    is_prompt = places[None, :] < lengths[:, None]

    def attend(chunk: tuple[Array, Array]) -> Array:
        i, q = chunk
        scores = jnp.einsum("bckgh,bskh->bkgcs", q, k).astype(jnp.float32)
        is_past = (i * CHUNK + jnp.arange(CHUNK))[:, None] >= places[None, :]
        seen = is_past[None] & is_prompt[:, None]
        scores = jnp.where(seen[:, None, None], scores / math.sqrt(HEAD), -1e30)
        shares = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
        return jnp.einsum("bkgcs,bskh->bckgh", shares, v)

    indices = jnp.arange(chunks.shape[1])
    mixed = lax.map(attend, (indices, jnp.moveaxis(chunks, 1, 0)))
    return jnp.moveaxis(mixed, 0, 1).reshape(batch, length, -1)


def prefill_step(
    cache: Tree, params: Tree, tokens: Array, lengths: Array
) -> tuple[Tree, Any]:
    """The cache filled by tokens [B, S], and of the next: the likeliest, log-chances.

    cache: k, v [L, B, P, K, H]; length [B] of what is in it.
    """
    batch, length = tokens.shape
    rates = BASE ** (-jnp.arange(0, HEAD, 2, dtype=jnp.float32) / HEAD)
    angles = jnp.arange(length)[:, None] * rates
    cos, sin = jnp.cos(angles), jnp.sin(angles)

    def layer(x: Array, inputs: Any) -> tuple[Array, Any]:
        weights, k_cache, v_cache = inputs
        y = norm(x, weights["attention_norm"])
        q = (y @ weights["wq"]).reshape(batch, length, -1, HEAD)
        k = (y @ weights["wk"]).reshape(batch, length, KEY_HEADS, HEAD)
        v = (y @ weights["wv"]).reshape(batch, length, KEY_HEADS, HEAD)
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        k_cache = lax.dynamic_update_slice_in_dim(k_cache, k, 0, axis=1)
        v_cache = lax.dynamic_update_slice_in_dim(v_cache, v, 0, axis=1)
        q = q.reshape(batch, length, KEY_HEADS, -1, HEAD)
        x = x + prompt_attention(q, k, v, lengths) @ weights["wo"]
        y = norm(x, weights["ffn_norm"])
        y = jax.nn.silu(y @ weights["w1"]) * (y @ weights["w3"])
        return x + y @ weights["w2"], (k_cache, v_cache)

    x = params["emb"][tokens]
    x, (k, v) = lax.scan(layer, x, (params["layers"], cache["k"], cache["v"]))
    last = jnp.take_along_axis(x, (lengths - 1)[:, None, None], axis=1)[:, 0]
    scores = norm(last, params["norm"]) @ params["out"]
    log_chances = jax.nn.log_softmax(scores.astype(jnp.float32))
    likeliest = jnp.argmax(log_chances, axis=-1).astype(jnp.int32)
    return {"k": k, "v": v, "length": lengths}, (likeliest, log_chances)


def prefill(
    batch: int = 16, length: int = 4096, places: int = 8192, width: int = 4096
) -> Target:
    """Llama 3 of 8B, four of its layers (Grattafiori et al., 2024), in bfloat16."""
    layers, inner, vocab, keys = 4, 7 * width // 2, 128_256, KEY_HEADS * HEAD
    stacked = {
        "attention_norm": half(layers, width), "ffn_norm": half(layers, width),
        "wq": half(layers, width, width), "wo": half(layers, width, width),
        "wk": half(layers, width, keys), "wv": half(layers, width, keys),
        "w1": half(layers, width, inner), "w3": half(layers, width, inner),
        "w2": half(layers, inner, width),
    }  # fmt: skip
    params = {
        "emb": half(vocab, width), "layers": stacked,
        "norm": half(width), "out": half(width, vocab),
    }  # fmt: skip
    place = half(layers, batch, places, KEY_HEADS, HEAD)
    cache = {"k": place, "v": place, "length": whole(batch)}
    return prefill_step, (cache, params, whole(batch, length), whole(batch))

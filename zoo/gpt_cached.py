"""T32 (`zoo/gpt.py`) with a cache of keys and values, multi-head or multi-query.

Multi-query attention is Shazeer's ("Fast Transformer Decoding: One Write-Head is All You
Need", 2019): one head of keys and values for all. A multi-head model becomes one by the
mean of its heads (Ainslie et al., "GQA", EMNLP 2023).

Tags name what a schedule may cut otherwise while tokens are made one by one: `cache`,
the `new` keys and values, queries and their results by `heads` and by `sequences`.

Letters: B batch, S positions of this pass, T positions of the cache, D d_model, N heads,
K key-value heads (N or 1), H d_head, V vocab.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

import meshwright as mw
from zoo import gpt
from zoo.attention import Cache, attend, causal_mask
from zoo.layers import rms_norm, rotary_angles, rotate

ROTARY_BASE = 10_000.0
"""That of `zoo.layers.rotary_table`, with which the model was trained."""


def to_multi_query(params: dict) -> dict:
    """The same model with one head of keys and of values: the mean of all.

    `qkv` [3, N, D, H] becomes `q` [N, D, H] and `kv` [2, D, H].
    """

    def block(weights: gpt.Weights) -> gpt.Weights:
        rest = {name: w for name, w in weights.items() if name != "qkv"}
        q, *kv = weights["qkv"]
        return rest | {"q": q, "kv": jnp.stack(kv).mean(axis=1)}

    return params | {"blocks": [block(w) for w in params["blocks"]]}


def to_multi_head(params: dict) -> dict:
    """A multi-query model as one that `zoo.gpt` runs: its one head N times."""

    def block(weights: gpt.Weights) -> gpt.Weights:
        rest = {name: w for name, w in weights.items() if name not in ("q", "kv")}
        q, (k, v) = weights["q"], weights["kv"]
        k, v = (jnp.broadcast_to(w, q.shape) for w in (k, v))
        return rest | {"qkv": jnp.stack([q, k, v])}

    return params | {"blocks": [block(w) for w in params["blocks"]]}


def project(x: Array, weights: gpt.Weights, positions: Array) -> tuple[Array, ...]:
    """q [B, S, N, H], k and v [B, S, K, H] of x [B, S, D] at `positions` [S]."""
    if "qkv" in weights:
        qkv = jnp.einsum("bsd,cndh->cbsnh", x, weights["qkv"])
        q, k, v = qkv[0], qkv[1], qkv[2]
    else:
        q = jnp.einsum("bsd,ndh->bsnh", x, weights["q"])
        kv = jnp.einsum("bsd,cdh->cbsh", x, weights["kv"])[..., None, :]
        k, v = kv[0], kv[1]
    table = rotary_angles(positions, q.shape[-1], ROTARY_BASE)
    return rotate(q, table), rotate(k, table), v


def write(cache: Cache, k: Array, v: Array, position: Array | int) -> Cache:
    """The cache with k, v [B, S, K, H] from `position` on, where there must be room."""
    if k.shape[1] > cache.k.shape[1]:
        raise ValueError(
            f"a sequence of {k.shape[1]} is longer than the cache of "
            f"{cache.k.shape[1]} positions"
        )
    put = partial(jax.lax.dynamic_update_slice_in_dim, axis=1)
    return Cache(
        put(cache.k, k, start_index=position), put(cache.v, v, start_index=position)
    )


def block(
    x: Array, weights: gpt.Weights, positions: Array, cache: Cache
) -> tuple[Array, Cache]:
    """One layer on x [B, S, D], which stands at `positions` [S] of a sequence.

    A pass over a whole prompt reads its own keys only; one over a single token, the
    cache.
    """
    heard = rms_norm(x, weights["attention_scale"], weights["attention_bias"])
    q, k, v = project(heard, weights, positions)
    q, k, v = mw.tag(q, "heads"), mw.tag(k, "new"), mw.tag(v, "new")
    cache = mw.tag(write(cache, k, v, positions[0]), "cache")
    if x.shape[1] == 1:
        mask = causal_mask(positions, cache.k.shape[1])
        y = mw.tag(attend(mw.tag(q, "sequences"), *cache, mask), "sequences")
    else:
        y = attend(q, k, v, causal_mask(positions, k.shape[1]))
    y = mw.tag(y, "heads")
    x = x + jnp.einsum("bsnh,nhd->bsd", y, weights["out"])
    mlp_input = rms_norm(x, weights["mlp_scale"], weights["mlp_bias"])
    return rms_norm(x + gpt.mlp(mlp_input, weights), weights["output_scale"]), cache


def forward(
    params: dict, tokens: Array, position: Array | int, caches: list[Cache]
) -> tuple[Array, list[Cache]]:
    """Scores [B, V] after the last of tokens [B, S], which begin at `position`."""
    embedding = params["embedding"]
    x = jnp.take(embedding, tokens, axis=0) * embedding.shape[1] ** 0.5
    positions = position + jnp.arange(tokens.shape[1])
    written = []
    for weights, cache in zip(params["blocks"], caches, strict=True):
        x, cache = block(x, weights, positions, cache)
        written.append(cache)
    return x[:, -1] @ embedding.T, written


def empty_caches(params: dict, batch: int, positions: int) -> list[Cache]:
    """One of zeros for each layer, for `batch` sequences of `positions`."""

    def one(weights: gpt.Weights) -> Cache:
        *_, heads, _, width = weights["qkv" if "qkv" in weights else "q"].shape
        heads = heads if "qkv" in weights else 1
        return Cache(*2 * [jnp.zeros((batch, positions, heads, width))])

    return [one(weights) for weights in params["blocks"]]

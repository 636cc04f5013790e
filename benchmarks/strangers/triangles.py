"""A block of a model that folds proteins: alignments and pairs of residues.

Of one protein. Letters: A aligned sequences, R residues, M features of the alignment,
Z features of a pair, N heads, H features of a head, G rows that attend each within
itself, L its length, C features of a hidden product.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.step import Tree, bfloat16, shape

HIDDEN = 32

# -- what a block is made of -------------------------------------------------------


def norm(x: Array, weights: Tree) -> Array:
    """`x` [..., D] standardized in float32, scaled and shifted, in its own type."""
    y = x.astype(jnp.float32)
    mean, variance = y.mean(-1, keepdims=True), y.var(-1, keepdims=True)
    y = (y - mean) * lax.rsqrt(variance + 1e-5)
    return (y * weights["scale"] + weights["shift"]).astype(x.dtype)


def linear(x: Array, weights: Tree) -> Array:
    """`x` [..., D] through a kernel and a bias."""
    return jnp.dot(x, weights["w"]) + weights["b"]


def dropped(x: Array, key: Array, rate: float, shared: int) -> Array:
    """`x` with elements left out, the same ones all along dimension `shared`."""
    dims = list(x.shape)
    dims[shared] = 1
    is_kept = jax.random.bernoulli(key, 1 - rate, dims)
    return x * (is_kept / (1 - rate)).astype(x.dtype)


def gated_attention(x: Array, weights: Tree, mask: Array, bias: Any = None) -> Array:
    """[G, L, D] of x [G, L, D] within rows; mask [G, L], a bias [N, L, L] for all."""
    q, k, v = jnp.einsum("gld,dinh->iglnh", x, weights["qkv"])
    scores = jnp.einsum("gqnh,gknh->gnqk", q * q.shape[-1] ** -0.5, k)
    scores = scores + bfloat16(1e9 * (mask - 1))[:, None, None, :]
    if bias is not None:
        scores = scores + bias[None]
    shares = bfloat16(jax.nn.softmax(scores.astype(jnp.float32), axis=-1))
    mixed = jnp.einsum("gnqk,gknh->gqnh", shares, v)
    gate = jax.nn.sigmoid(jnp.einsum("gld,dnh->glnh", x, weights["gate"]))
    return jnp.einsum("glnh,nhd->gld", mixed * gate, weights["out"])


def row_attention(msa: Array, pair: Array, weights: Tree, mask: Array) -> Array:
    """[A, R, M]: residues of a sequence on each other, biased by pairs [R, R, Z]."""
    bias = jnp.einsum("qkz,zn->nqk", norm(pair, weights["bn"]), weights["bias"])
    return gated_attention(norm(msa, weights["n"]), weights, mask, bias)


def column_attention(msa: Array, weights: Tree, mask: Array) -> Array:
    """[A, R, M]: what sequences have at a residue, on each other."""
    x = jnp.swapaxes(norm(msa, weights["n"]), 0, 1)
    return jnp.swapaxes(gated_attention(x, weights, mask.T), 0, 1)


def transition(x: Array, weights: Tree) -> Array:
    """An MLP on x [..., D]."""
    inner = jax.nn.relu(linear(norm(x, weights["n"]), weights["up"]))
    return linear(inner, weights["down"])


def outer_product_mean(msa: Array, weights: Tree, mask: Array) -> Array:
    """[R, R, Z] of msa [A, R, M]: products of two residues' features, over sequences."""
    x = norm(msa, weights["n"])
    mask = mask.astype(x.dtype)[..., None]
    a, b = linear(x, weights["a"]) * mask, linear(x, weights["b"]) * mask
    outer = jnp.einsum("aic,ajd->ijcd", a, b)
    counts = jnp.einsum("aic,ajc->ijc", mask, mask)
    outer = outer.reshape(*outer.shape[:2], -1)
    return linear(outer, weights["out"]) / (counts + 1e-3)


def triangle_product(pair: Array, weights: Tree, mask: Array, formula: str) -> Array:
    """[R, R, Z] of pairs: two edges of each triangle tell the third."""
    x = norm(pair, weights["n"])
    edges = linear(x, weights["edges"]) * mask.astype(x.dtype)[..., None]
    edges = edges * jax.nn.sigmoid(linear(x, weights["gates"]))
    a, b = jnp.split(edges, 2, axis=-1)
    y = norm(jnp.einsum(formula, a, b), weights["n2"])
    return linear(y, weights["out"]) * jax.nn.sigmoid(linear(x, weights["gate"]))


def triangle_attention(pair: Array, weights: Tree, mask: Array) -> Array:
    """[R, R, Z] of pairs: edges of a node on each other, biased by the third edge."""
    x = norm(pair, weights["n"])
    bias = jnp.einsum("qkz,zn->nqk", x, weights["bias"])
    return gated_attention(x, weights, mask, bias)


def evoformer_block(carry: Any, weights: Tree, masks: Any, key: Array) -> Any:
    """New msa [A, R, M] and pair [R, R, Z]; Jumper et al., 2021, Algorithm 6."""
    msa, pair = carry
    msa_mask, pair_mask = masks
    weights = bfloat16(weights)
    keys = jax.random.split(key, 5)
    y = row_attention(msa, pair, weights["row"], msa_mask)
    msa = msa + dropped(y, keys[0], 0.15, 0)
    msa = msa + column_attention(msa, weights["column"], msa_mask)
    msa = msa + transition(msa, weights["msa_mlp"])
    pair = pair + outer_product_mean(msa, weights["outer"], msa_mask)
    y = triangle_product(pair, weights["out_edges"], pair_mask, "ikc,jkc->ijc")
    pair = pair + dropped(y, keys[1], 0.25, 0)
    y = triangle_product(pair, weights["in_edges"], pair_mask, "kic,kjc->ijc")
    pair = pair + dropped(y, keys[2], 0.25, 0)
    y = triangle_attention(pair, weights["start"], pair_mask)
    pair = pair + dropped(y, keys[3], 0.25, 0)
    y = triangle_attention(jnp.swapaxes(pair, 0, 1), weights["end"], pair_mask.T)
    pair = pair + dropped(jnp.swapaxes(y, 0, 1), keys[4], 0.25, 1)
    return msa, pair + transition(pair, weights["pair_mlp"])


# -- shapes ------------------------------------------------------------------------


def linear_shapes(before: int, after: int) -> Tree:
    """Parameters of `linear`."""
    return {"w": shape(before, after), "b": shape(after)}


def norm_shapes(width: int) -> Tree:
    """Parameters of `norm`."""
    return {"scale": shape(width), "shift": shape(width)}


def attention_shapes(width: int, heads: int, pairs: int | None) -> Tree:
    """Parameters of `gated_attention`; pairs: features that its bias comes of."""
    head = shape(width, heads, HIDDEN)
    weights = {
        "n": norm_shapes(width), "qkv": shape(width, 3, heads, HIDDEN),
        "gate": head, "out": shape(heads, HIDDEN, width),
    }  # fmt: skip
    return weights if pairs is None else {**weights, "bias": shape(pairs, heads)}


def mlp_shapes(width: int) -> Tree:
    """Parameters of `transition`."""
    return {
        "n": norm_shapes(width), "up": linear_shapes(width, 4 * width),
        "down": linear_shapes(4 * width, width),
    }  # fmt: skip


def block_shapes(msa: int, pair: int) -> Tree:
    """Parameters of `evoformer_block`."""
    triangle = {
        "n": norm_shapes(pair), "n2": norm_shapes(pair),
        "edges": linear_shapes(pair, 2 * pair), "gates": linear_shapes(pair, 2 * pair),
        "gate": linear_shapes(pair, pair), "out": linear_shapes(pair, pair),
    }  # fmt: skip
    around = attention_shapes(pair, 4, pair)
    outer = {
        "n": norm_shapes(msa), "a": linear_shapes(msa, HIDDEN),
        "b": linear_shapes(msa, HIDDEN), "out": linear_shapes(HIDDEN**2, pair),
    }  # fmt: skip
    return {
        "row": {**attention_shapes(msa, 8, pair), "bn": norm_shapes(pair)},
        "column": attention_shapes(msa, 8, None), "msa_mlp": mlp_shapes(msa),
        "outer": outer, "out_edges": triangle, "in_edges": triangle,
        "start": around, "end": around, "pair_mlp": mlp_shapes(pair),
    }  # fmt: skip

"""The parts of a transformer, as functions of arrays and their weights.

Letters of shapes: B batch, S sequence, D d_model, N heads, H d_head, F d_ff, V vocab.
"""

import jax
import jax.numpy as jnp
from jax import Array

EPSILON = 1e-6
"""Keeps a norm finite on zeros; the value of T5 and Gemma."""


def rms_norm(x: Array, scale: Array, bias: Array | None = None) -> Array:
    """`x` [..., D] divided by its root mean square over D, then scaled [D].

    One reduction over D forward and one backward (Zhang and Sennrich, NeurIPS 2019).
    """
    mean_square = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    y = x * jax.lax.rsqrt(mean_square + EPSILON) * scale
    return y if bias is None else y + bias


def layer_norm(x: Array, scale: Array, bias: Array) -> Array:
    """`x` [..., D] with mean 0 and variance 1 over D, then scaled and shifted [D]."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + EPSILON) * scale + bias


def rotary_table(sequence: int, d_head: int) -> tuple[Array, Array]:
    """Cosines and sines [S, 1, H / 2] of the positions 0 to S - 1."""
    return rotary_angles(jnp.arange(sequence), d_head, 10_000.0)


def rotary_angles(positions: Array, d_head: int, base: float) -> tuple[Array, Array]:
    """Cosines and sines [S, 1, H / 2] of rotary positions [S] (Su et al., 2021)."""
    rate = base ** (-jnp.arange(0, d_head, 2) / d_head)
    angle = positions[:, None, None] * rate
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x: Array, table: tuple[Array, Array]) -> Array:
    """`x` [B, S, N, H] turned by its position: halves of H are the two coordinates."""
    cos, sin = table
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def causal_attention(q: Array, k: Array, v: Array) -> Array:
    """Softmax attention of [B, S, N, H] on all earlier positions and its own."""
    scores = jnp.einsum("bqnh,bknh->bnqk", q, k) * q.shape[-1] ** -0.5
    position = jnp.arange(q.shape[1])
    seen = position[:, None] >= position
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1)
    return jnp.einsum("bnqk,bknh->bqnh", weights, v)


def cross_entropy(logits: Array, targets: Array) -> Array:
    """Mean over [B, S] of -log softmax(logits [B, S, V]) at the targets."""
    shifted = logits - jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    log_total = jnp.log(jnp.sum(jnp.exp(shifted), axis=-1))
    chosen = jnp.take_along_axis(shifted, targets[..., None], axis=-1)[..., 0]
    return jnp.mean(log_total - chosen)

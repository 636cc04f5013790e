"""What the steps of strangers share: shapes, Adam, and a loss.

Nothing is ever run, so parameters are only shapes. Letters: B batch, S sequence,
D features, N heads, H features of a head, V vocab.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

Tree = dict[str, Any]
Target = tuple[Callable[..., Any], tuple[Any, ...]]

RATE = 1e-3
MEAN_DECAY = 0.9
SQUARE_DECAY = 0.99


def shape(*dims: int) -> jax.ShapeDtypeStruct:
    """An array of floats."""
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def whole(*dims: int) -> jax.ShapeDtypeStruct:
    """An array of whole numbers, of tokens or classes or a count."""
    return jax.ShapeDtypeStruct(dims, jnp.int32)


def adam(params: Any, gradients: Any, state: Any) -> tuple[Any, Any]:
    """New parameters, and the means, mean squares and count of steps behind them."""
    means, squares, count = state
    count = count + 1
    means = jax.tree.map(
        lambda old, g: MEAN_DECAY * old + (1 - MEAN_DECAY) * g, means, gradients
    )
    squares = jax.tree.map(
        lambda old, g: SQUARE_DECAY * old + (1 - SQUARE_DECAY) * g * g,
        squares,
        gradients,
    )
    steps = count.astype(jnp.float32)

    def updated(param: Array, mean: Array, square: Array) -> Array:
        rise = RATE * (mean / (1 - MEAN_DECAY**steps))
        return param - rise / (jnp.sqrt(square / (1 - SQUARE_DECAY**steps)) + 1e-8)

    return jax.tree.map(updated, params, means, squares), (means, squares, count)


def training(loss_fn: Callable[[Any, Any], Array], params: Any, batch: Any) -> Target:
    """A step of Adam and its arguments, of the shapes of `params` and `batch`."""

    def step(state: Any, batch: Any) -> Any:
        params, optimizer = state
        loss, gradients = jax.value_and_grad(loss_fn)(params, batch)
        return adam(params, gradients, optimizer), loss

    return step, ((params, (params, params, whole())), batch)


def bfloat16(tree: Any) -> Any:
    """All arrays of a tree in bfloat16."""
    return jax.tree.map(lambda x: x.astype(jnp.bfloat16), tree)


def surprise(log_shares: Array, labels: Array) -> Array:
    """Mean of -log of the labels' shares; log_shares [..., V], labels [...]."""
    return -jnp.mean(jnp.take_along_axis(log_shares, labels[..., None], -1))


def standardized(x: Array) -> Array:
    """`x` [..., D] in float32 with mean 0 and variance 1 over D."""
    x = x.astype(jnp.float32)
    mean = x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-6)

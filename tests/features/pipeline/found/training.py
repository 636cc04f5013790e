"""What all models of found pipelines share: drawn weights, optimizers, and a train step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH, LENGTH, WIDTH, VOCAB = 16, 4, 32, 48

type Target = tuple[Callable[..., Any], tuple[Any, ...]]
"""A train step with example arguments."""


def weights(*shape: int, seed: int = 0, fan_in: int = 0) -> np.ndarray:
    """A float32 array whose products keep the size of what they multiply.

    fan_in: the number of addends; by default the last dim but one.
    """
    rng = np.random.default_rng(seed)
    fan_in = fan_in or shape[-2]
    return (rng.standard_normal(shape) * fan_in**-0.5).astype(np.float32)


def tokens(seed: int = 1, length: int = LENGTH) -> np.ndarray:
    """A batch of token numbers."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, VOCAB, (BATCH, length)).astype(np.int32)


def pictures(channels: int = 3, size: int = 8) -> np.ndarray:
    """A batch of images [B, H, W, C]."""
    rng = np.random.default_rng(2)
    return rng.standard_normal((BATCH, size, size, channels)).astype(np.float32)


def cross_entropy(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean loss of float32 scores."""
    losses = optax.softmax_cross_entropy_with_integer_labels(
        scores.astype(jnp.float32), labels
    )
    return losses.mean()


def trained(
    loss: Callable[..., Any],
    params: Any,
    batch: Any,
    optimizer: optax.GradientTransformation | None = None,
) -> Target:
    """A train step of `loss(params, batch)`: by gradient descent, or by an optimizer."""
    if optimizer is None:

        def descend(params: Any, batch: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(params, batch)
            return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads), value

        return descend, (params, batch)

    def update(params: Any, state: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    return update, (params, optimizer.init(params), batch)

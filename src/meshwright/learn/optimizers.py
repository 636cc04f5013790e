"""Optimizers: AdamW by optax for models, and Adam without optax for policies.

A shipped policy goes on learning while it is used, where optax need not be installed. The
two differ in the last bits, and each has its form in files of models.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.errors import LearnedError

_BETA_1, _BETA_2, _TINY = 0.9, 0.99, 1e-8
"""Decay of Adam's moments (Kingma and Ba, ICLR 2015)."""


@cache
def adamw(weight_decay: float) -> Any:
    """AdamW (Loshchilov and Hutter, ICLR 2019) with clipped gradients.

    Its updates are for a learning rate of 1, and are multiplied by each step's own.
    """
    try:
        import optax
    except ImportError as missing:
        raise LearnedError(
            "training needs the package optax: install the extra `meshwright[learned]`"
        ) from missing
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_adam(),
        optax.add_decayed_weights(weight_decay),
    )


def descend(params: Any, updates: Any, rate: Any) -> Any:
    """The parameters minus the updates times the learning rate."""
    return jax.tree.map(lambda old, update: old - rate * update, params, updates)


def adam_start(params: Any) -> Any:
    """The state of Adam before the first step: step count and both moments."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return jnp.zeros(()), zeros, zeros


def adam_step(params: Any, state: Any, grads: Any, rate: Any) -> tuple[Any, Any]:
    """Parameters and state after a step of Adam with gradients of norm at most 1."""
    norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g / jnp.maximum(1.0, norm), grads)
    count, first, second = state
    count = count + 1
    first = _mix(_BETA_1, first, grads)
    second = _mix(_BETA_2, second, jax.tree.map(jnp.square, grads))

    def moved(p: Any, m: Any, v: Any) -> Any:
        m, v = m / (1 - _BETA_1**count), v / (1 - _BETA_2**count)
        return p - rate * m / (jnp.sqrt(v) + _TINY)

    return jax.tree.map(moved, params, first, second), (count, first, second)


def _mix(decay: float, old: Any, new: Any) -> Any:
    return jax.tree.map(lambda a, b: decay * a + (1 - decay) * b, old, new)

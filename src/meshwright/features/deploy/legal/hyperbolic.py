"""Functions of `exp` and `log` that are exact near 0 and do not overflow early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshwright.program.ir import Op

Replacement = Callable[..., Any] | None

_LOG_2 = float(np.log(2))
_LARGE = 1e5
"""Numbers beyond which float32 has no digits left for 1 beside the square."""


def log1p(op: Op) -> Replacement:
    """The series of 2 atanh(x / (2 + x)) near 0, where log(1 + x) has few digits."""
    del op

    def computed(x: Any) -> Any:
        s = x / (2 + x)
        square = s * s
        near = 2 * s * (1 + square * (1 / 3 + square * (1 / 5 + square / 7)))
        return jnp.where(lax.abs(x) < 0.25, near, lax.log(1 + x))

    return computed


def expm1(op: Op) -> Replacement:
    """tanh(x / 2) * (exp(x) + 1), which is exact near 0, unlike exp(x) - 1."""
    del op

    def computed(x: Any) -> Any:
        near = lax.tanh(x * 0.5) * (lax.exp(x) + 1)
        return jnp.where(lax.abs(x) < 1, near, lax.exp(x) - 1)

    return computed


def arctanh(op: Op) -> Replacement:
    """Half the difference of two `log1p`."""
    plus_1: Any = log1p(op)
    return lambda x: 0.5 * (plus_1(x) - plus_1(-x))


def arccosh(op: Op) -> Replacement:
    """log(x + sqrt(x^2 - 1)), and log(2 x) far from 1."""
    del op

    def computed(x: Any) -> Any:
        is_large = x > _LARGE
        near = jnp.where(is_large, jnp.ones_like(x), x)
        found = lax.log(near + lax.sqrt(near - 1) * lax.sqrt(near + 1))
        return jnp.where(is_large, lax.log(x) + _LOG_2, found)

    return computed


def sinh(op: Op) -> Replacement:
    """Half of t + t / (t + 1) with t = exp(x) - 1; half of exp(x) - exp(-x) far from 0."""
    minus_1: Any = expm1(op)

    def computed(x: Any) -> Any:
        t = minus_1(x)
        far = lax.exp(x - _LOG_2) - lax.exp(-x - _LOG_2)
        return jnp.where(lax.abs(x) < 1, 0.5 * (t + t / (t + 1)), far)

    return computed


def arcsinh(op: Op) -> Replacement:
    """log1p(y + y^2 / (1 + sqrt(1 + y^2))) of the magnitude y, with the sign."""
    plus_1: Any = log1p(op)

    def computed(x: Any) -> Any:
        size = lax.abs(x)
        near = jnp.where(size < _LARGE, size, jnp.ones_like(x))
        found = plus_1(near + near * near / (1 + lax.sqrt(1 + near * near)))
        return lax.sign(x) * jnp.where(size < _LARGE, found, lax.log(size) + _LOG_2)

    return computed

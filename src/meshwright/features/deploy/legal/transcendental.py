"""Functions of angles, `exp` and `log` that keep their digits, and do not overflow early.

IREE 3.13 reduces an angle by one constant: sin(1e6) is wrong in the second digit, and so is
sin(-1e-6). LiteRT's exp(x) - 1 and log(1 + x) have few digits near 0.
"""

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


# -- angles ----------------------------------------------------------------------------


_PARTS = 6


def _quarter_turn_parts() -> list[float]:
    """pi / 2 as a sum of numbers of 8 bits, whose products with 16 bits are exact."""
    rest = np.longdouble("1.57079632679489661923132169163975144")
    parts: list[float] = []
    for _ in range(_PARTS):
        _, exponent = np.frexp(rest)
        step = np.ldexp(np.longdouble(1), int(exponent) - 8)
        part = np.floor(rest / step) * step
        parts.append(float(part))
        rest = rest - part
    return parts


def of_angle(op: Op) -> Replacement:
    """`sin`, `cos` or `tan` by Cody and Waite's reduction to an eighth of a turn."""
    if op.results[0].dtype not in ("float32", "bfloat16", "float16"):
        return None
    shift = 1 if op.kind == "cos" else 0

    def computed(given: Any) -> Any:
        x = given.astype(jnp.float32)
        turns = jnp.round(x * np.float32(2 / np.pi))
        rest = x
        for part in _quarter_turn_parts():
            rest = rest - turns * np.float32(part)
        sin, cos = _near_zero(lax.clamp(-1.0, rest, 1.0))
        quadrant = turns + shift
        is_odd = quadrant - 2 * jnp.floor(quadrant * 0.5) == 1
        if op.kind == "tan":
            return jnp.where(is_odd, -cos / sin, sin / cos).astype(given.dtype)
        is_negative = quadrant - 4 * jnp.floor(quadrant * 0.25) >= 2
        found = jnp.where(is_odd, cos, sin)
        return jnp.where(is_negative, -found, found).astype(given.dtype)

    return computed


def _near_zero(x: Any) -> tuple[Any, Any]:
    """Sine and cosine up to pi / 4, by the polynomials of Cephes (Moshier, 1992)."""
    z = x * x
    sin = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * x + x
    cos = (2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2
    return sin, cos * z * z - 0.5 * z + 1

"""Sine, cosine and tangent of angles up to 1e5, for compilers whose own lose digits.

IREE 3.13 reduces an angle by one constant: sin(1e6) is wrong in the second digit, and so is
sin(-1e-6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshwright.program.ir import Op

Replacement = Callable[..., Any] | None

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

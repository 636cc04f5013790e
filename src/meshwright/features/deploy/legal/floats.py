"""Floating-point ops that compute what XLA computes, also for NaN and infinities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshwright.features.deploy.legal.rewrite import (
    call_op,
    elementwise,
    is_float,
    is_integer,
)
from meshwright.program.ir import Literal, Op

Replacement = Callable[..., Any] | None


def saturating_cast(op: Op) -> Replacement:
    """A conversion to integers that is clamped to their range, and 0 for NaN."""
    target, given = op.results[0].dtype, op.operands[0]
    if (
        not is_integer(target)
        or not is_float(given.dtype)
        or isinstance(given, Literal)
    ):
        return None
    info = np.iinfo(target)

    def converted(x: Any) -> Any:
        x = x if x.dtype == jnp.float64 else x.astype(jnp.float32)
        high = np.array(info.max).astype(x.dtype)
        is_rounded = int(high) > info.max
        high = np.nextafter(high, high.dtype.type(0)) if is_rounded else high
        low = np.array(info.min).astype(x.dtype)
        number = jnp.where(x != x, jnp.zeros_like(x), x)
        made = lax.clamp(low, number, high).astype(target)
        if not is_rounded:
            return made
        return jnp.where(number > high, jnp.asarray(info.max, target), made)

    return converted


def exact_pow(op: Op) -> Replacement:
    """`pow` that has a real result for negative bases, and 1 for an exponent of 0."""
    if not is_float(op.results[0].dtype):
        return None
    exponent = op.operands[1]

    def power(x: Any, y: Any) -> Any:
        if is_integer(str(y.dtype)):
            y = y.astype(x.dtype)
        size = lax.abs(x)
        positive = lax.pow(size, y)
        is_whole = jnp.floor(y) == y
        is_odd = is_whole & (jnp.floor(y * 0.5) * 2 != y)
        is_real = is_whole | (size == np.inf) | (size == 0)
        negative = jnp.where(is_odd, -positive, positive)
        negative = jnp.where(is_real, negative, jnp.full_like(x, np.nan))
        made = jnp.where(x < 0, negative, positive)
        if isinstance(exponent, Literal) and exponent.value != 0:
            return made
        return jnp.where((y == 0) | (x == 1), jnp.ones_like(x), made)

    return elementwise(op, power)


def cube_root(op: Op) -> Replacement:
    """The cube root by a power of the magnitude."""
    del op
    return lambda x: lax.sign(x) * lax.pow(lax.abs(x), jnp.full_like(x, 1 / 3))


def _is_negative(x: Any) -> Any:
    """Whether the sign is negative, also of -0."""
    return (x < 0) | ((x == 0) & (1 / x < 0))


def arctan2(op: Op) -> Replacement:
    """`atan2` by `atan` of the quotient, with the signs of zeros and infinities."""

    def angle(y: Any, x: Any) -> Any:
        are_infinite = (lax.abs(x) == np.inf) & (lax.abs(y) == np.inf)
        quotient = jnp.where(are_infinite, lax.sign(y) * lax.sign(x), y / x)
        base = jnp.where((x == 0) & (y == 0), jnp.zeros_like(x), lax.atan(quotient))
        turn = jnp.where(
            _is_negative(y), jnp.full_like(x, -np.pi), jnp.full_like(x, np.pi)
        )
        return jnp.where(_is_negative(x), base + turn, base)

    return elementwise(op, angle)


def reciprocal_root(op: Op) -> Replacement:
    """1 / sqrt(x), which is infinite at 0."""
    del op
    return lambda x: 1 / lax.sqrt(x)


_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def inverse_erf(op: Op) -> Replacement:
    """The inverse error function by two polynomials (Giles, GPU Computing Gems, 2012)."""
    del op

    def polynomial(coefficients: tuple[float, ...], w: Any) -> Any:
        found = jnp.full_like(w, coefficients[0])
        for each in coefficients[1:]:
            found = found * w + each
        return found

    def computed(x: Any) -> Any:
        w = -lax.log((1 - x) * (1 + x))
        is_near = w < 5
        far = lax.sqrt(jnp.where(is_near, jnp.ones_like(w), w)) - 3
        found = (
            jnp.where(is_near, polynomial(_NEAR, w - 2.5), polynomial(_FAR, far)) * x
        )
        return jnp.where(lax.abs(x) == 1, x * w, found)

    return computed


def horner(op: Op) -> Replacement:
    """A polynomial from its coefficients, the constant one first."""
    del op

    def computed(x: Any, *coefficients: Any) -> Any:
        found = jnp.broadcast_to(coefficients[-1], x.shape)
        for each in reversed(coefficients[:-1]):
            found = found * x + each
        return found

    return computed


def round_away(op: Op) -> Replacement:
    """Rounding of halves away from zero, by the part behind the point."""
    if op.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
        return None

    def computed(x: Any) -> Any:
        size = lax.abs(x)
        down = lax.floor(size)
        up = jnp.where(size - down >= 0.5, down + 1, down)
        return jnp.where(lax.abs(x) < np.inf, lax.sign(x) * up, x)

    return computed


def saturated_tanh(op: Op) -> Replacement:
    """`tanh` that is exactly 1 or -1 beyond 10, as float32 is."""
    if op.results[0].dtype == "float64":
        return None
    return lambda x: jnp.where(lax.abs(x) > 10, lax.sign(x), lax.tanh(x))


def finite_comparison(op: Op) -> Replacement:
    """`x == inf` as `x > largest number`, since LiteRT's constants are finite there."""
    literals = [a for a in op.operands if isinstance(a, Literal)]
    if len(literals) != 1 or not np.isinf(np.asarray(literals[0].value, np.float64)):
        return None
    most = np.finfo(np.float32).max
    number: Any = literals[0].value
    is_positive = number > 0
    position = op.operands.index(literals[0])

    def compared(*operands: Any) -> Any:
        x = operands[1 - position]
        is_there = x > most if is_positive else x < -most
        return is_there if op.kind == "eq" else ~is_there

    return compared


def signed_remainder(op: Op) -> Replacement:
    """A remainder with the dividend's sign, from that of the magnitudes."""
    if not is_float(op.results[0].dtype):
        return None

    def computed(x: Any, y: Any) -> Any:
        size = lax.abs(x)
        made = lax.rem(size, lax.abs(y))
        made = jnp.where((lax.abs(y) == np.inf) & (size < np.inf), size, made)
        return jnp.where(x < 0, -made, made)

    return elementwise(op, computed)


# -- NaN in reductions -----------------------------------------------------------------


def extreme_with_nan(op: Op) -> Replacement:
    """The largest or smallest element, or NaN if an element is NaN."""
    operand = op.operands[0]
    if not is_float(operand.dtype):
        return None
    axes: Any = op.params["axes"]

    def computed(x: Any) -> Any:
        is_nan = lax.reduce_max((x != x).astype(jnp.int32), tuple(axes))
        found = call_op(op, x)
        return jnp.where(is_nan > 0, jnp.full_like(found, np.nan), found)

    return computed


def place_with_nan(op: Op) -> Replacement:
    """The place of the largest or smallest element, or of the first NaN."""
    if not is_float(op.operands[0].dtype):
        return None
    params: Any = op.params

    def computed(x: Any) -> Any:
        is_nan = (x != x).astype(jnp.int32)
        first = lax.argmax(is_nan, params["axes"][0], params["index_dtype"])
        has_nan = lax.reduce_max(is_nan, tuple(params["axes"])) > 0
        return jnp.where(has_nan, first, call_op(op, x))

    return computed

"""Integer ops that compute what XLA computes, also at the limits of their dtypes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshwright.features.deploy.legal.rewrite import (
    Rule,
    call_op,
    elementwise,
    is_integer,
)
from meshwright.program.ir import Literal, Op


def _bits(dtype: Any) -> int:
    return int(jnp.iinfo(dtype).bits)


def guarded_division(op: Op) -> Callable[..., Any] | None:
    """Integer division whose divisor is never 0, nor -1 under the smallest integer.

    A processor ends the process there. XLA's quotient by 0 is -1, its remainder is the
    dividend; the smallest integer by -1 is itself, with remainder 0.
    """
    if not is_integer(op.results[0].dtype):
        return None
    divisor = op.operands[1]
    if isinstance(divisor, Literal) and divisor.value not in (0, -1):
        return None

    def divide(x: Any, y: Any) -> Any:
        overflows = (x == jnp.iinfo(x.dtype).min) & (
            y == jnp.asarray(-1).astype(y.dtype)
        )
        safe = jnp.where((y == 0) | overflows, jnp.ones_like(y), y)
        if op.kind == "rem":
            return jnp.where(y == 0, x, lax.rem(x, safe))
        return jnp.where(y == 0, ~jnp.zeros_like(x), lax.div(x, safe))

    return elementwise(op, divide)


def remainder_by_division(op: Op) -> Callable[..., Any] | None:
    """An integer remainder with the dividend's sign, by a division that truncates."""
    if not is_integer(op.results[0].dtype):
        return None
    return elementwise(op, lambda x, y: x - lax.div(x, y) * y)


# -- shifts and bits -------------------------------------------------------------------


def unsigned_shift(op: Op) -> Callable[..., Any] | None:
    """A shift of unsigned integers by less than their width; XLA's is 0 or -1 beyond."""
    dtype = op.results[0].dtype
    bits, wide = _bits(dtype), jnp.uint64 if _bits(dtype) == 64 else jnp.uint32
    amount = op.operands[1]
    number: Any = amount.value if isinstance(amount, Literal) else -1
    is_known = 0 <= int(number) < bits
    unsigned = jnp.dtype(f"uint{bits}")

    def logical(x: Any, s: Any) -> Any:
        shift = lax.shift_left if op.kind == "shift_left" else lax.shift_right_logical
        made = shift(x.astype(unsigned).astype(wide), s.astype(wide))
        return made.astype(unsigned).astype(x.dtype)

    def shifted(x: Any, s: Any) -> Any:
        inside = is_known or ((s >= 0) & (s < bits))
        if op.kind == "shift_right_arithmetic":
            steps = s if is_known else jnp.where(inside, s, jnp.full_like(s, bits - 1))
            positive = jnp.where(x < 0, ~x, x)
            made = logical(positive, steps)
            return jnp.where(x < 0, ~made, made)
        if is_known:
            return logical(x, s)
        made = logical(x, jnp.where(inside, s, jnp.zeros_like(s)))
        return jnp.where(inside, made, jnp.zeros_like(x))

    return elementwise(op, shifted)


def shift_by_product(op: Op) -> Callable[..., Any] | None:
    """A shift of int32 or uint32 by a product, or by an arithmetic shift and a sum.

    The logical shift of a negative number by s is the arithmetic one plus 2^(32 - s).
    """
    if op.results[0].dtype not in ("int32", "uint32"):
        return None
    steps = np.arange(32, dtype=np.uint64)
    powers = (np.uint64(1) << steps).astype(np.uint32).view(np.int32)
    raised = (np.uint64(1) << (32 - steps)).astype(np.uint32).view(np.int32)

    def shifted(x: Any, s: Any) -> Any:
        number, s = x.astype(jnp.int32), s.astype(jnp.int32)
        inside = (s >= 0) & (s < 32)
        at = jnp.where(inside, s, jnp.full_like(s, 31))
        down = lax.shift_right_arithmetic(number, at)
        if op.kind == "shift_right_arithmetic":
            return down.astype(x.dtype)
        if op.kind == "shift_left":
            made = number * jnp.asarray(powers)[at]
        else:
            made = jnp.where(number < 0, down + jnp.asarray(raised)[at], down)
        return jnp.where(inside, made, jnp.zeros_like(made)).astype(x.dtype)

    return elementwise(op, shifted)


def bits_by_sums(op: Op) -> Callable[..., Any] | None:
    """`and` and `or` of int32 from sums and `xor`: a + b = 2 (a and b) + (a xor b).

    The halves of 16 bits are added apart, so that no sum overflows.
    """
    if op.results[0].dtype != "int32":
        return None

    def both(a: Any, b: Any) -> Any:
        high = [lax.shift_right_arithmetic(x, jnp.full_like(x, 16)) for x in (a, b)]
        low = [x - h * 65536 for x, h in zip((a, b), high, strict=True)]
        one = jnp.ones_like(a)
        parts = [
            lax.shift_right_arithmetic(x + y - (x ^ y), one) for x, y in (high, low)
        ]
        return parts[0] * 65536 + parts[1]

    if op.kind == "and":
        return elementwise(op, both)
    return elementwise(op, lambda a, b: a + b - both(a, b))


def counted_bits(op: Op) -> Callable[..., Any] | None:
    """`population_count` and `clz` from shifts and sums of groups of bits."""
    if _bits(op.results[0].dtype) != 32:
        return None

    def count(x: Any) -> Any:
        def right(v: Any, n: int) -> Any:
            return lax.shift_right_logical(v, jnp.full_like(v, n))

        def mask(v: Any, m: int) -> Any:
            return v & jnp.asarray(np.array(m, np.uint32).astype(x.dtype))

        x = x - mask(right(x, 1), 0x55555555)
        x = mask(x, 0x33333333) + mask(right(x, 2), 0x33333333)
        x = mask(x + right(x, 4), 0x0F0F0F0F)
        return right(x * jnp.asarray(0x01010101, x.dtype), 24)

    def leading(x: Any) -> Any:
        for n in (1, 2, 4, 8, 16):
            x = x | lax.shift_right_logical(x, jnp.full_like(x, n))
        return 32 - count(x)

    return count if op.kind == "population_count" else leading


# -- dtypes ----------------------------------------------------------------------------

SMALL = ("int8", "int16", "uint8", "uint16")
ARITHMETIC = (
    "abs", "add", "add_any", "and", "argmax", "argmin", "clamp", "clz", "cummax", "cummin",
    "cumsum", "cumprod", "div", "dot_general", "eq", "ge", "gt", "integer_pow", "le", "lt",
    "max", "min", "mul", "ne", "neg", "not", "or", "population_count", "reduce_max",
    "reduce_min", "reduce_prod", "reduce_sum", "rem", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sort", "square", "sub",
    "top_k", "xor",
)  # fmt: skip
"""Kinds whose results modulo 2^8 or 2^16 are those of wider integers, or that compare."""

_NOT_MODULAR = ("clz", "population_count", "shift_right_logical")


def in_int32(dtypes: Collection[str] = SMALL) -> Rule:
    """A rule that computes ops of some integer dtypes in int32, which wraps around."""

    def rule(op: Op) -> Callable[..., Any] | None:
        atoms = (*op.operands, *op.results)
        if not any(a.dtype in dtypes for a in atoms):
            return None
        if op.kind in _NOT_MODULAR and op.results[0].dtype.startswith("int"):
            return None
        if op.kind in ("dot_general",):
            wide: Any = {**op.params, "preferred_element_type": np.dtype("int32")}
        else:
            wide = op.params

        def computed(*operands: Any) -> Any:
            given = [
                x.astype(jnp.int32) if str(x.dtype) in dtypes else x for x in operands
            ]
            found = call_op(replace(op, params=wide), *given)
            several = found if isinstance(found, list) else [found]
            return [x.astype(r.dtype) for x, r in zip(several, op.results, strict=True)]

        return computed

    return rule


def modular(op: Op) -> Callable[..., Any] | None:
    """uint32 sums and products in int32, whose bits are the same; also their equality."""
    return in_int32(("uint32",))(op)


def unsigned_order(op: Op) -> Callable[..., Any] | None:
    """Comparison of uint32 or bools as int32 in the same order."""
    dtype = op.operands[0].dtype
    if dtype not in ("uint32", "bool"):
        return None
    least = np.int32(-(2**31)) if dtype == "uint32" else np.int32(0)

    def compared(*operands: Any) -> Any:
        return call_op(op, *(x.astype(jnp.int32) + least for x in operands))

    return compared


def unsigned_division(op: Op) -> Callable[..., Any] | None:
    """Division of uint32 by a power of two, as a shift."""
    divisor = op.operands[1]
    if op.results[0].dtype != "uint32" or not isinstance(divisor, Literal):
        return None
    content: Any = divisor.value
    number = int(content)
    if number <= 0 or number & (number - 1):
        return None
    steps = number.bit_length() - 1
    return lambda x, y: lax.shift_right_logical(x, jnp.full_like(x, steps))


def bools_as_logic(op: Op) -> Callable[..., Any] | None:
    """`max`, `min` and `xor` of bools as `or`, `and` and a comparison."""
    if op.results[0].dtype != "bool":
        return None
    ways: dict[str, Callable[..., Any]] = {
        "max": lax.bitwise_or, "min": lax.bitwise_and, "xor": lax.ne,
    }  # fmt: skip
    return elementwise(op, ways[op.kind])


def product_by_sums(op: Op) -> Callable[..., Any] | None:
    """A product of integer matrices as the sum of elementwise products."""
    if not is_integer(op.results[0].dtype):
        return None
    numbers: Any = op.params["dimension_numbers"]
    (lc, rc), (lb, rb) = numbers

    def product(x: Any, y: Any) -> Any:
        dtype = op.results[0].dtype
        x, y = x.astype(dtype), y.astype(dtype)
        left = [d for d in range(x.ndim) if d not in (*lb, *lc)]
        right = [d for d in range(y.ndim) if d not in (*rb, *rc)]
        a = x.transpose(*lb, *left, *lc)
        b = y.transpose(*rb, *right, *rc)
        a = a.reshape(
            *a.shape[: len(lb) + len(left)],
            *[1] * len(right),
            *a.shape[len(lb) + len(left) :],
        )
        b = b.reshape(*b.shape[: len(rb)], *[1] * len(left), *b.shape[len(rb) :])
        contracted = range(len(lb) + len(left) + len(right), a.ndim)
        return lax.reduce_sum(a * b, tuple(contracted))

    return product

"""Monoids: the associative operations of reductions, and their identities."""

from __future__ import annotations

from typing import Any

from meshwright.program.ir import Atom, Literal

_OF_BOOL = {"and": True, "or": False, "xor": False, "max": False, "min": True}

_WITH_INFINITY = ("float64", "float32", "float16", "bfloat16")

_BINARY = {"add": "sum", "mul": "prod"} | {
    name: name for name in ("max", "min", "and", "or", "xor")
}

_IDEMPOTENT = ("max", "min", "and", "or")


def identity_of(monoid: str, dtype: str) -> bool | int | float | None:
    """The identity of `monoid` in `dtype`; `None` if there is none.

    There is none for the order of complex numbers, nor of floats of 8 bits, since some of
    these dtypes have no infinity.
    """
    if dtype == "bool":
        return _OF_BOOL.get(monoid)
    if monoid in ("sum", "or", "xor"):
        return 0
    if monoid == "prod":
        return 1
    if dtype.startswith(("int", "uint")):
        low, high = integer_range(dtype)
        return {"max": low, "min": high, "and": -1 if low else high}[monoid]
    if dtype in _WITH_INFINITY:
        return float("-inf") if monoid == "max" else float("inf")
    return None


def integer_range(dtype: str) -> tuple[int, int]:
    """The smallest and the largest number of an integer dtype."""
    bits = int(dtype.lstrip("uint"))
    if dtype.startswith("u"):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def is_neutral(init: Atom, monoid: str) -> bool:
    """Whether it makes no difference if every part of a reduction starts from `init`."""
    if monoid in _IDEMPOTENT:
        return True
    if not isinstance(init, Literal):
        return False
    return bool(init.value == identity_of(monoid, init.dtype))


def monoid_of(jaxpr: Any) -> str | None:
    """The monoid that a jaxpr of two scalars computes; `None` unless it is one known op."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    if len(inner.eqns) != 1:
        return None
    (equation,) = inner.eqns
    taken, given = list(inner.invars), list(equation.invars)
    if given not in (taken, taken[::-1]):
        return None
    if list(inner.outvars) != list(equation.outvars):
        return None
    name: str = equation.primitive.name
    if name in ("jit", "pjit"):
        return monoid_of(equation.params["jaxpr"])
    return _BINARY.get(name)

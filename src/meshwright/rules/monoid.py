"""Identities of the associative operations that reductions combine with."""

from __future__ import annotations

_OF_BOOL = {"and": True, "or": False, "xor": False, "max": False, "min": True}

_WITH_INFINITY = ("float64", "float32", "float16", "bfloat16")


def identity_of(monoid: str, dtype: str) -> bool | int | float | None:
    """The scalar that `monoid` leaves out of account in `dtype`; None if there is none.

    Complex numbers have no order here, and floats of 8 bits no infinity to rely on.
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
    """Smallest and largest number of an integer dtype."""
    bits = int(dtype.lstrip("uint"))
    if dtype.startswith("u"):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

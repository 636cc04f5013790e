"""Reductions over microbatches: initial values, and ops that add a microbatch."""

from dataclasses import dataclass

from meshwright.program.ir import Atom, Literal, Op, Value


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """A reduction over microbatches.

    addend: the value of one microbatch. result: the reduced value, which updates read.
    monoid: the operation, such as "sum" or "max".
    """

    addend: Atom
    result: Value
    monoid: str


_COMBINE = {
    "sum": "add",
    "max": "max",
    "min": "min",
    "prod": "mul",
    "or": "or",
    "and": "and",
}
"""The op that adds one microbatch's value to the running one, by kind of reduction."""


def added(total: Total, result: Value) -> Op:
    """The op that adds one microbatch's value to the running reduction."""
    is_any = total.monoid == "sum" and total.result.dtype == "bool"
    kind = "or" if is_any else _COMBINE[total.monoid]
    return Op(kind, (total.result, total.addend), (result,))


def first_total(total: Total) -> Op:
    """The op that computes the initial value of a reduction: the neutral element."""
    value = total.result
    literal = Literal(_neutral(total.monoid, value.dtype), value.dtype)
    params = {"shape": value.shape, "dims": ()}
    return Op("broadcast_in_dim", (literal,), (value,), params)


def _neutral(monoid: str, dtype: str) -> object:
    if dtype == "bool":
        return monoid in ("and", "prod", "min")
    if monoid in ("max", "min"):
        sign = -1 if monoid == "max" else 1
        if "int" in dtype:
            bits = int(dtype.lstrip("uint"))
            lowest = 0 if dtype.startswith("u") else -(2 ** (bits - 1))
            highest = 2**bits - 1 + lowest
            return lowest if monoid == "max" else highest
        return sign * float("inf")
    return 1 if monoid == "prod" else 0

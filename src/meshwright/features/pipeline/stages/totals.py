"""Reductions over microbatches: initial values, and ops that add a microbatch."""

from dataclasses import dataclass

from meshwright.errors import StageError
from meshwright.program.ir import Atom, Literal, Op, Value
from meshwright.program.ops.arithmetic.reduction import identity_of


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """A reduction over microbatches.

    addend: the value of one microbatch. result: the reduced value, which updates read.
    monoid: the operation, such as "sum" or "max".
    """

    addend: Atom
    result: Value
    monoid: str


_OF_BOOL = {"sum": "or", "prod": "and"}
"""The operations that reductions of truth values amount to."""

_OPS = {"sum": "add", "prod": "mul"}
"""The ops of two values for reductions that have another name than their op."""


def added(total: Total, result: Value) -> Op:
    """The op that adds one microbatch's value to the running reduction."""
    monoid = _monoid(total)
    kind = _OPS.get(monoid, monoid)
    return Op(kind, (total.result, total.addend), (result,))


def first_total(total: Total) -> Op:
    """The op that computes the initial value of a reduction: the neutral element.

    Raises `StageError` if the operation has none, such as max of complex numbers.
    """
    value = total.result
    neutral = identity_of(_monoid(total), value.dtype)
    if neutral is None:
        raise StageError(
            f"the {total.monoid} over all microbatches of {value} starts from no value: "
            f"{value.dtype} has no neutral element of {total.monoid}; convert the values, "
            "to float32 say"
        )
    literal = Literal(neutral, value.dtype)
    params = {"shape": value.shape, "dims": ()}
    return Op("broadcast_in_dim", (literal,), (value,), params)


def _monoid(total: Total) -> str:
    """The operation of a reduction, which for truth values is a logical one."""
    is_bool = total.result.dtype == "bool"
    return _OF_BOOL.get(total.monoid, total.monoid) if is_bool else total.monoid

"""Reductions over microbatches: initial values, and ops that add a microbatch."""

from dataclasses import dataclass

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


_OPS = {"sum": "add", "prod": "mul"}
"""The ops of two values for reductions that have another name than their op."""


def added(total: Total, result: Value) -> Op:
    """The op that adds one microbatch's value to the running reduction."""
    monoid = _monoid(total)
    kind = _OPS.get(monoid, monoid)
    return Op(kind, (total.result, total.addend), (result,))


def first_total(total: Total) -> Op:
    """The op that computes the initial value of a reduction: the neutral element."""
    value = total.result
    literal = Literal(identity_of(_monoid(total), value.dtype), value.dtype)
    params = {"shape": value.shape, "dims": ()}
    return Op("broadcast_in_dim", (literal,), (value,), params)


def _monoid(total: Total) -> str:
    """The operation of a reduction; a sum of truth values is their "or"."""
    is_any = total.monoid == "sum" and total.result.dtype == "bool"
    return "or" if is_any else total.monoid

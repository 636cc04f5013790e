"""Links: the wires of a region op with the values at their ends, instead of positions.

Transformations take a region op apart into links and bodies, add, drop or reverse links,
and put it together again; positions are then counted anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from meshwright.program.ir import Atom, Op, Program, Value, Wire


@dataclass(frozen=True, slots=True)
class Link:
    """One wire of a region op.

    operand, result: the values outside.
    inputs, outputs: by number of the body, the values inside.
    is_stacked: outside the array has one more leading dim, one element per iteration.
    """

    operand: Atom | None = None
    inputs: Mapping[int, Value] = field(default_factory=dict[int, Value])
    outputs: Mapping[int, Atom] = field(default_factory=dict[int, Atom])
    result: Value | None = None
    is_stacked: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """The inside of a nested program: its ops and constants, without its ends."""

    ops: Sequence[Op]
    constants: Mapping[Value, object] = field(default_factory=dict[Value, object])


def links_of(op: Op) -> list[Link]:
    """The wires of a region op with the values at their ends."""
    return [
        Link(
            None if wire.operand is None else op.operands[wire.operand],
            {b: op.bodies[b].inputs[i] for b, i in wire.inputs},
            {b: op.bodies[b].outputs[i] for b, i in wire.outputs},
            None if wire.result is None else op.results[wire.result],
            wire.is_stacked,
        )
        for wire in op.wires
    ]


def bodies_of(op: Op) -> list[Body]:
    """The ops and constants of each nested program."""
    return [Body(body.ops, body.constants) for body in op.bodies]


def region_op(
    like: Op, links: Sequence[Link], bodies: Sequence[Body], **changed: Any
) -> Op:
    """The region op with these links and bodies; else it is as `like`."""
    operands: list[Atom] = []
    results: list[Value] = []
    inputs: list[list[Value]] = [[] for _ in bodies]
    outputs: list[list[Atom]] = [[] for _ in bodies]
    wires: list[Wire] = []
    for link in links:
        wires.append(
            Wire(
                None if link.operand is None else _added(operands, link.operand),
                tuple((b, _added(inputs[b], v)) for b, v in link.inputs.items()),
                tuple((b, _added(outputs[b], a)) for b, a in link.outputs.items()),
                None if link.result is None else _added(results, link.result),
                link.is_stacked,
            )
        )
    programs = tuple(
        Program(tuple(inputs[b]), tuple(body.ops), tuple(outputs[b]), body.constants)
        for b, body in enumerate(bodies)
    )
    return replace(
        like,
        operands=tuple(operands),
        results=tuple(results),
        bodies=programs,
        wires=tuple(wires),
        **changed,
    )


def _added[T](values: list[T], value: T) -> int:
    """The position of the value, which is appended."""
    values.append(value)
    return len(values) - 1


def is_condition(op: Op, body: int) -> bool:
    """Whether a body is the condition of a while loop, which no tangent enters."""
    return op.kind == "while" and body == 0


def fresh(like: Atom) -> Value:
    """A new value of the same shape and dtype."""
    return Value(like.shape, like.dtype)

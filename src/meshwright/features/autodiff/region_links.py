"""Links: how values enter and leave the nested programs of a region op.

A region op is a loop, a branch or a remat; its nested programs are its bodies. The IR
connects operands, inputs and outputs of bodies, and results by `Wire`s, which hold
positions. A `Link` is a wire that holds the values instead. Transformations take a
region op apart into links and bodies, add, remove or reverse links, and put the op
together again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from meshwright.program.ir import Atom, Op, Program, Value, Wire


@dataclass(frozen=True, slots=True)
class Link:
    """One connection between a region op and its bodies, such as a carry.

    operand, result: the values outside, where they enter and leave.
    inputs, outputs: the values inside, by number of the body.
    is_stacked: whether the value outside has one more leading dim, with an element for
        each iteration.
    """

    operand: Atom | None = None
    inputs: Mapping[int, Value] = field(default_factory=dict[int, Value])
    outputs: Mapping[int, Atom] = field(default_factory=dict[int, Atom])
    result: Value | None = None
    is_stacked: bool = False

    def is_in(self, values: Collection[Value]) -> bool:
        """Whether one of the link's values inside is among `values`."""
        return any(
            end in values for end in (*self.inputs.values(), *self.outputs.values())
        )


@dataclass(frozen=True, slots=True)
class Body:
    """The ops and constants of a nested program, without its inputs and outputs."""

    ops: Sequence[Op]
    constants: Mapping[Value, object] = field(default_factory=dict[Value, object])


def links_of(op: Op) -> list[Link]:
    """The links of a region op, in the order of its wires."""
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


def region_op(
    like: Op, links: Sequence[Link], bodies: Sequence[Body | Program], **changed: Any
) -> Op:
    """A region op with these links and bodies, otherwise equal to the op `like`.

    changed: other fields of the op to replace.
    """
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
    """Append the value, and return its position."""
    values.append(value)
    return len(values) - 1


def is_condition(op: Op, body: int) -> bool:
    """Whether a body is the condition of a while loop, which gets no tangents."""
    return op.kind == "while" and body == 0


def fresh(like: Atom) -> Value:
    """A new value of the same shape and dtype as an atom."""
    return Value(like.shape, like.dtype)

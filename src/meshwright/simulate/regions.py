"""What loops and branches have in memory of their own, and what is part of other values."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from meshwright.ir import Op, Program, Value, Wire
from meshwright.simulate.fed import PART
from meshwright.simulate.layout import Layout
from meshwright.simulate.library import is_loop
from meshwright.simulate.rules import Rules
from meshwright.simulate.unit import SAME_MEMORY, TAKES_IN, Kind, kind_of


def open_region(
    op: Op, layout: Layout, rules: Rules, computed: Collection[Value]
) -> None:
    """Note in a layout which values of a region's bodies need no memory of their own.

    computed: values that their readers compute, so that a body makes them itself.
    What a loop makes for a stack and for its next turn is written to the stack, and
    from there over what was carried; what it carries already is copied to the stack.
    """
    stacked: list[set[Value]] = [set() for _ in op.bodies]
    carried = {
        op.bodies[body].inputs[i]
        for _, _, wire in ([] if rules.calls_library else carries(op))
        for body, i in wire.inputs
    }
    for wire in op.wires:
        operand = None if wire.operand is None else op.operands[wire.operand]
        if wire.is_stacked:
            for body, i in wire.inputs:
                stacked[body].add(op.bodies[body].inputs[i])
            layout.inside.update(
                end
                for body, i in wire.outputs
                if isinstance(end := op.bodies[body].outputs[i], Value)
                and end not in carried
                and _is_made_inside(op.bodies[body], end, rules)
            )
        elif operand in computed and wire.result is None:
            layout.virtual.update(op.bodies[body].inputs[i] for body, i in wire.inputs)
    for slices, body in zip(stacked, op.bodies, strict=True):
        kinds = {Kind.LOOP} if rules.calls_library else TAKES_IN
        layout.inside |= slices - _needed_whole(body, kinds)


def carries(op: Op) -> Iterator[tuple[int, int, Wire]]:
    """What a loop carries: the positions of its operand and its result, and the wire."""
    for wire in op.wires:
        if wire.operand is not None and wire.result is not None and not wire.is_stacked:
            yield wire.operand, wire.result, wire


def _is_made_inside(body: Program, end: Value, rules: Rules) -> bool:
    """Whether what a body makes for a stack is written there in the first place."""
    if not rules.calls_library:
        return True
    makers = [op for op in body.ops if end in op.results]
    others = any(end in op.operands for op in body.ops)
    return not others and all(map(is_loop, makers))


def _needed_whole(body: Program, kinds: Collection[Kind]) -> set[Value]:
    """Values that some op of a body, of none of the kinds, reads from memory."""
    return {
        v
        for op in body.ops
        if kind_of(op) not in kinds
        for v in op.operands
        if isinstance(v, Value)
    }


def is_cut_in(region: Op, values: Collection[Value]) -> bool:
    """Whether a region's bodies, or those within, take a device's own part of a value.

    values: inputs of its bodies.
    """
    for body in region.bodies:
        names = set(values)
        for op in body.ops:
            if names.isdisjoint(op.operands):
                continue
            if op.kind == PART:
                return True
            if op.kind in SAME_MEMORY:
                names.update(op.results)
            inside = {
                op.bodies[number].inputs[i]
                for wire in op.wires
                if wire.operand is not None and op.operands[wire.operand] in names
                for number, i in wire.inputs
            }
            if inside and is_cut_in(op, inside):
                return True
    return False

"""What loops and branches have in memory of their own, and what is part of other values."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from meshwright.predict.compilers.cpu.library_calls import is_loop
from meshwright.predict.compilers.rules import Rules
from meshwright.predict.compilers.xla.dataflow import stored_outputs
from meshwright.predict.compilers.xla.fusion import (
    BARRIER,
    TAKES_IN,
    Fusion,
    FusionKind,
    kind_of,
)
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.predict.compilers.xla.producers import PART
from meshwright.program.analysis.accumulators import loop_carries
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait


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
        for _, _, wire in ([] if rules.calls_library else loop_carries(op))
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
        kinds = {FusionKind.LOOP} if rules.calls_library else TAKES_IN
        layout.inside |= slices - _needed_whole(body, kinds)


def carried_anew(op: Op) -> set[Value]:
    """Results that a loop makes anew in each turn: it keeps them, whoever reads them."""
    ends = [stored_outputs(body) for body in op.bodies]
    return {
        op.results[result]
        for _, result, wire in loop_carries(op)
        if not all(
            ends[body][i] in [op.bodies[n].inputs[j] for n, j in wire.inputs]
            for body, i in wire.outputs
        )
    }


def handed_on(
    op: Op, number: int, units: Sequence[Fusion], layout: Layout
) -> dict[Value, Atom]:
    """By input of one body, what its `units` make for the next turn, in the same place."""
    body, size = op.bodies[number], layout.size
    outputs = stored_outputs(body)
    made = {value for unit in units for value in unit.writes}
    pairs = [
        (body.inputs[i], outputs[j])
        for _, _, wire in loop_carries(op)
        for n, i in wire.inputs
        for m, j in wire.outputs
        if n == m == number
    ]
    return {
        p: o
        for p, o in pairs
        if isinstance(o, Value) and o in made and size(o) == size(p)
    }


def handed_out(op: Op, number: int, rules: Rules) -> Sequence[Atom]:
    """What one body of a region hands out that needs memory of its own."""
    if not rules.calls_library:
        return stored_outputs(op.bodies[number])
    kept = op.bodies[number].outputs
    stacked = {i for w in op.wires if w.is_stacked for n, i in w.outputs if n == number}
    return [v for i, v in enumerate(kept) if i not in stacked]


def _is_made_inside(body: Program, end: Value, rules: Rules) -> bool:
    """Whether what a body makes for a stack is written there in the first place."""
    if not rules.calls_library:
        return True
    makers = [op for op in body.ops if end in op.results]
    others = any(end in op.operands for op in body.ops)
    return not others and all(map(is_loop, makers))


def _needed_whole(body: Program, kinds: Collection[FusionKind]) -> set[Value]:
    """Values that some op of a body, of none of the kinds, reads from memory."""
    return {
        v
        for op in body.ops
        if kind_of(op) not in kinds or op.kind == BARRIER
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
            if has_trait(op.kind, Trait.ALIASES_OPERAND):
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

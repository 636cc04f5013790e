"""Buffers of loops and branches: what their bodies share with the values outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from meshwright.predict.compilers.hlo.dataflow import Flow, stored_outputs
from meshwright.predict.compilers.hlo.fusion import SLICE_OF_DEVICE, Fusion
from meshwright.predict.compilers.hlo.layouts import Layouts
from meshwright.program.analysis.accumulators import loop_carries
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait


def uncarried_stack_outputs(op: Op) -> set[Value]:
    """Outputs of an op's bodies that are stacked, unless the loop carries them too.

    What a loop makes for a stack and for its next iteration is written to the stack and
    copied from there; what it carries already is copied to the stack.
    """
    carried = {
        op.bodies[body].inputs[i]
        for _, _, wire in loop_carries(op)
        for body, i in wire.inputs
    }
    return {end for _, end in stacked_ends(op) if end not in carried}


def stacked_ends(op: Op) -> list[tuple[Program, Value]]:
    """Outputs of bodies that a loop stacks over its iterations, each with its body."""
    return [
        (op.bodies[body], end)
        for wire in op.wires
        if wire.is_stacked
        for body, i in wire.outputs
        if isinstance(end := op.bodies[body].outputs[i], Value)
    ]


def recomputed_carries(op: Op) -> set[Value]:
    """Results that a loop computes anew in each iteration: it stores them in any case."""
    ends = [stored_outputs(body) for body in op.bodies]
    return {
        op.results[result]
        for _, result, wire in loop_carries(op)
        if not all(
            ends[body][i] in [op.bodies[n].inputs[j] for n, j in wire.inputs]
            for body, i in wire.outputs
        )
    }


def carried_operands(op: Op, flow: Flow) -> dict[Value, Value]:
    """The operand whose buffer a result of a loop takes, by result.

    An operand that the loop also reads in every iteration keeps its buffer.
    """
    pairs = [
        (op.results[result], operand)
        for position, result, _ in loop_carries(op)
        if (operand := flow.operand(op, position)) is not None
    ]
    carried = Counter(operand for _, operand in pairs)
    others = Counter(flow.operands[op]) - carried
    return {result: operand for result, operand in pairs if operand not in others}


def carried_in_place(
    op: Op, number: int, fusions: Sequence[Fusion], layouts: Layouts
) -> dict[Value, Atom]:
    """The output that fusions write into an input's buffer, by input of one body."""
    inputs, outputs = op.bodies[number].inputs, stored_outputs(op.bodies[number])
    made, size = {value for each in fusions for value in each.writes}, layouts.size
    return {
        inputs[i]: end
        for _, _, wire in loop_carries(op)
        for n, i in wire.inputs
        for m, j in wire.outputs
        if n == m == number and isinstance(end := outputs[j], Value)
        if end in made and size(end) == size(inputs[i])
    }


def is_sliced_inside(op: Op, values: Collection[Value]) -> bool:
    """Whether an op's bodies, or bodies within, slice a device's own part of a value.

    values: inputs of its bodies.
    """
    for body in op.bodies:
        names = set(values)
        for each in body.ops:
            if names.isdisjoint(each.operands):
                continue
            if each.kind == SLICE_OF_DEVICE:
                return True
            if has_trait(each.kind, Trait.ALIASES_OPERAND):
                names.update(each.results)
            inside = {
                each.bodies[number].inputs[i]
                for wire in each.wires
                if wire.operand is not None and each.operands[wire.operand] in names
                for number, i in wire.inputs
            }
            if inside and is_sliced_inside(each, inside):
                return True
    return False

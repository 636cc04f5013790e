"""Rematerialization: values are computed a second time rather than kept in memory.

A training step computes values in its forward pass and reads some of them in its
backward pass (JAX calls these residuals). A residual that is not to be kept is computed
again just before its first reader in the backward pass, from the values that are kept.
An optimization barrier stands before the second computation: without it, a compiler
would merge it with the first (XLA: `HloCSE`). What a scan of the forward pass stacks for
a scan of the backward pass is computed again there, iteration by iteration.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from meshwright.program.analysis.live_ranges import (
    BufferInterval,
    live_bytes,
    live_ranges,
)
from meshwright.program.ir import Atom, Program, Value, num_bytes
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rewrite.recomputation import Recomputation, behind_barrier
from meshwright.program.rewrite.rematerialized_scans import rematerialize_scans


def backward_start(program: Program) -> int:
    """The index of the first op of the backward pass.

    It is taken to be where most bytes of op results are live; a program's inputs do not
    count, since they are live throughout.
    """
    end = len(program.ops)
    ranges = live_ranges((op.operands, op.results) for op in program.ops)
    last = {**ranges.last_uses, **dict.fromkeys(program.outputs, end)}
    # A result is live at all positions after its op, up to its last reader.
    live = live_bytes(
        (
            BufferInterval(num_bytes(value), index + 1, last.get(value, index))
            for value, index in ranges.definitions.items()
        ),
        end + 1,
    )
    return max(range(end + 1), key=live.__getitem__)


def residuals(program: Program, start: int) -> tuple[Value, ...]:
    """The results of the first `start` ops that a later op reads, in program order."""
    read = {a for op in program.ops[start:] for a in op.operands}
    return tuple(r for op in program.ops[:start] for r in op.results if r in read)


def rematerialize(program: Program, keep: Collection[Value], start: int) -> Program:
    """The program that computes its residuals a second time, except those in `keep`.

    keep: values of the program and of its loops' bodies; a value of a body is kept for
        all iterations. Results of ops with effects and of loops are always kept, except
        what a scan stacks and a later scan reads iteration by iteration.
    start: index of the first op of the backward pass.
    Law: the result computes the same.
    """
    program = rematerialize_scans(program, keep, start)
    ops = [*program.ops[:start]]
    second = Recomputation(program.ops[:start], keep, behind_barrier)
    for op in program.ops[start:]:
        operands: list[Atom] = []
        for operand in op.operands:
            ops += second.ops_for(operand)
            operands.append(second.copies.get(operand, operand))
        changed = operands != [*op.operands]
        ops.append(replace(op, operands=tuple(operands)) if changed else op)
    return eliminate_dead_code(replace(program, ops=tuple(ops)))

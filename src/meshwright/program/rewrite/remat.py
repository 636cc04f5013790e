"""Programs that compute values again, late, rather than keep them.

A training step makes values on its way forward and reads them on its way back; the turn
is where most of them wait. What is not kept is made again just before its first reader
behind the turn, from what is kept; a barrier stands before it, since a compiler would
otherwise see that it was there before. What a loop stacks for a loop behind the turn is
made again there, turn by turn.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from meshwright.program.analysis.live_ranges import (
    BufferInterval,
    live_bytes,
    live_ranges,
)
from meshwright.program.ir.program import Atom, Program, Value, num_bytes
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rewrite.remat_loops import recompute_in_loops
from meshwright.program.rewrite.rematerialize import Again


def turn_of(program: Program) -> int:
    """How many ops run before most bytes wait; inputs do not count, they always do."""
    ranges = live_ranges((op.operands, op.results) for op in program.ops)
    end, kept = ranges.num_steps, {*program.outputs}
    # A result waits from the point behind its op to the point before its last reader.
    waits = (
        BufferInterval(
            num_bytes(value),
            made + 1,
            end if value in kept else ranges.end(value),
        )
        for value, made in ranges.definitions.items()
    )
    return max(range(end + 1), key=live_bytes(waits, end + 1).__getitem__)


def waiting(program: Program, turn: int) -> tuple[Value, ...]:
    """The values made before the turn that are read behind it, in order."""
    read = {a for op in program.ops[turn:] for a in op.operands}
    return tuple(r for op in program.ops[:turn] for r in op.results if r in read)


def recompute(program: Program, keep: Collection[Value], turn: int) -> Program:
    """The program that makes again what waits at the turn and is not to be kept.

    keep: values of the program and of its loops' bodies; of these, what is kept of one
    turn is kept of all. Ops with effects and loops run once: their results are kept,
    but for what a loop stacks and one behind reads turn by turn.
    Law: it computes the same.
    """
    program = recompute_in_loops(program, keep, turn)
    ops = [*program.ops[:turn]]
    again = Again(program.ops[:turn], keep)
    for op in program.ops[turn:]:
        operands: list[Atom] = []
        for operand in op.operands:
            ops += again.ops_for(operand)
            operands.append(again.made.get(operand, operand))
        changed = operands != [*op.operands]
        ops.append(replace(op, operands=tuple(operands)) if changed else op)
    return eliminate_dead_code(replace(program, ops=tuple(ops)))

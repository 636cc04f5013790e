"""Algebraic simplification: a broadcast that adds dims of one element is a reshape.

XLA: `AlgebraicSimplifier`, which turns it into a bitcast.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from meshwright.predict.compilers.hlo.compilation import Compilation
from meshwright.program.ir import Atom, Op, Program, Value


def simplify_broadcasts(compilation: Compilation) -> Compilation:
    """The compilation with reshapes for broadcasts that repeat nothing."""
    program, origins = simplified(compilation.program, compilation.input.outputs)
    return compilation.with_program(program, origins)


def simplified(
    program: Program, outputs: Collection[Atom]
) -> tuple[Program, Mapping[Op, Op]]:
    """The program so rewritten; itself if it has no such broadcast.

    outputs: broadcasts that leave the program, and so are arrays of their own. The
    second result is the origin of each op that stands for another one.
    """
    origins: dict[Op, Op] = {}
    return _rewritten(program, frozenset(outputs), origins), origins


def _rewritten(
    program: Program, outputs: frozenset[Atom], origins: dict[Op, Op]
) -> Program:
    changed: dict[Op, Op] = {}
    for op in program.ops:
        if op.bodies:
            bodies = tuple(_rewritten(body, outputs, origins) for body in op.bodies)
            if any(a is not b for a, b in zip(bodies, op.bodies, strict=True)):
                changed[op] = replace(op, bodies=bodies)
        elif op.kind == "broadcast_in_dim" and _repeats_nothing(op, outputs):
            changed[op] = replace(op, kind="reshape")
    if not changed:
        return program
    origins.update((new, old) for old, new in changed.items())
    return replace(program, ops=tuple([changed.get(op, op) for op in program.ops]))


def _repeats_nothing(op: Op, outputs: frozenset[Atom]) -> bool:
    (operand,), (result,) = op.operands, op.results
    if not isinstance(operand, Value) or result in outputs:
        return False
    return math.prod(operand.shape) == math.prod(result.shape)

"""Algebraic simplification: broadcasts that only add dims of extent 1 become reshapes.

XLA: `AlgebraicSimplifier`, which makes them bitcasts.
"""

import math
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from meshwright.predict.compilers.model.compilation import Compilation, Origins, Rewrite
from meshwright.program.ir import Atom, Op, Program, Value


def simplify_broadcasts(compilation: Compilation) -> Compilation:
    """The compilation, with broadcasts that copy no element replaced by reshapes."""
    outputs = frozenset(compilation.input.outputs)
    return Rewrite(partial(simplified, outputs=outputs))(compilation)


def simplified(
    program: Program, origins: Origins, outputs: Collection[Atom]
) -> Program:
    """The program, with broadcasts that copy no element replaced by reshapes.

    outputs: results of the program. A broadcast among them stays, since it needs a buffer
    of its own.
    """
    ops: list[Op] = []
    for op in program.ops:
        if op.bodies:
            ops.append(origins.with_bodies(op, partial(simplified, outputs=outputs)))
        elif op.kind == "broadcast_in_dim" and _repeats_nothing(op, outputs):
            ops.append(origins.replace(op, kind="reshape"))
        else:
            ops.append(op)
    return program if tuple(ops) == program.ops else replace(program, ops=tuple(ops))


def _repeats_nothing(op: Op, outputs: Collection[Atom]) -> bool:
    (operand,), (result,) = op.operands, op.results
    if not isinstance(operand, Value) or result in outputs:
        return False
    return math.prod(operand.shape) == math.prod(result.shape)

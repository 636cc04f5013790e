"""Backward passes of cuDNN's attention without gradients of biases that nobody reads."""

from dataclasses import replace

from meshwright.program.ir import Atom, Op, Program
from meshwright.program.ops.arithmetic.attention import BACKWARD


def drop_unread_bias_gradients(program: Program) -> Program:
    """The program in which attention computes the gradient of its bias only if it is read.

    JAX asks cuDNN for the gradient of every bias, also of a constant one. It takes time,
    and a sum over devices if the bias is broadcast.
    """
    read: set[Atom] = set(program.outputs)
    for op in program.ops:
        read.update(op.operands)

    def rewritten(op: Op) -> Op:
        if op.bodies:
            bodies = tuple(map(drop_unread_bias_gradients, op.bodies))
            return replace(op, bodies=bodies)
        if op.kind != BACKWARD or len(op.results) < 4 or op.results[3] in read:
            return op
        params = {**op.params, "variadic_args": (True, False)}
        return replace(op, results=op.results[:3], params=params)

    if not any(op.kind == BACKWARD for op in program.walk()):
        return program
    return replace(program, ops=tuple(map(rewritten, program.ops)))

"""Buffer assignment of XLA's CPU compiler: outputs have memory of their own all along."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.predict.compilers.hlo.buffer_policy import (
    BodyBuffers,
    BufferPolicy,
    HeapOrder,
    shared_inputs,
)
from meshwright.predict.compilers.hlo.fusion import Fusion
from meshwright.predict.compilers.hlo.layouts import Layouts
from meshwright.program.ir import Atom, Op, Program, Value


def program_outputs(program: Program) -> Sequence[Atom]:
    """The outputs of a program; a bitcast of another value is not looked through."""
    return program.outputs


def all_inputs_counted(
    op: Op, number: int, fusions: Sequence[Fusion], layouts: Layouts
) -> BodyBuffers:
    """Body buffers with all inputs; those with an operand's buffer count outside too.

    Nothing is updated in place, and what a loop stacks is written to the stack.
    """
    del fusions, layouts
    body = op.bodies[number]
    stacked = {i for w in op.wires if w.is_stacked for n, i in w.outputs if n == number}
    outputs = [v for i, v in enumerate(body.outputs) if i not in stacked]
    return BodyBuffers(body.inputs, outputs, {}, shared_inputs(op, number))


def is_stack(op: Op, result: Value) -> bool:
    """Whether a loop stacks a result over its iterations: it is allocated before."""
    return any(
        wire.is_stacked
        and wire.result is not None
        and op.results[wire.result] is result
        for wire in op.wires
    )


def any_size(operand_bytes: int, result_bytes: int, is_busy: bool) -> bool:
    """True: elementwise results take any operand's buffer that is free."""
    del operand_bytes, result_bytes, is_busy
    return True


CPU_BUFFERS = BufferPolicy(
    heap=HeapOrder.OUTPUTS_APART,
    outputs=program_outputs,
    body_buffers=all_inputs_counted,
    is_preallocated=is_stack,
    may_alias=any_size,
)

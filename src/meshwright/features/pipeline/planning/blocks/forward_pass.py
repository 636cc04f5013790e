"""Find the end of the forward pass in a captured train step."""

from __future__ import annotations

from meshwright.predict.roofline.work import program_work
from meshwright.program.capture import Captured
from meshwright.program.ir import Program
from meshwright.program.rewrite.rematerialization import backward_start

_LEAST_SHARE = 0.2
"""Least share of a step's FLOPs that the forward pass has.

A forward pass typically has a third, and the backward pass the rest.
"""


def forward_end(captured: Captured) -> int:
    """The number of ops of the forward pass, which come first in the program.

    The pass ends before the first op that JAX made by transposing (`Op.is_backward`), as
    where stages are built: for a step with two losses, before the gradients of the first.
    Without such ops it ends where the first output that is not updated state (such as the
    loss) is known, if a good part of the step is computed by then; otherwise, where most
    bytes are live.
    """
    program = captured.program
    first = next((i for i, op in enumerate(program.ops) if op.is_backward), None)
    if first is not None:
        return first
    total = program_work(program).flops
    producers = {r: index for index, op in enumerate(program.ops) for r in op.results}
    ends: list[int] = []
    for position, output in enumerate(program.outputs):
        index = producers.get(output)  # pyright: ignore[reportArgumentType]
        if position in captured.ties or index is None:
            continue
        done = program_work(Program((), program.ops[: index + 1], ())).flops
        if done >= _LEAST_SHARE * total:
            ends.append(index + 1)
    return min(ends, default=backward_start(program))

"""Ops of a program with the number of times that each runs in a step."""

from collections.abc import Iterator

from meshwright.program.ir import Op, Program


def op_executions(program: Program, times: int = 1) -> Iterator[tuple[Op, int]]:
    """Every op, also in nested programs, with the number of times that it runs in a step.

    A scan's body runs `length` times. A `while` counts once, since its trip count is
    unknown. Every branch of a `cond` counts.
    """
    for op in program.ops:
        yield op, times
        for body in op.bodies:
            yield from op_executions(body, times * num_iterations(op))


def num_iterations(op: Op) -> int:
    """The number of times that the bodies of an op run; 1 if it is not a scan."""
    if op.kind != "scan":
        return 1
    return op.params["length"]

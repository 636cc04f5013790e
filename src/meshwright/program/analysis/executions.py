"""Ops of a program with the number of times that each runs in a step."""

from collections.abc import Iterator
from enum import Enum

from meshwright.program.ir import Atom, Op, Program

ASSUMED_ITERATIONS = 100
"""Iterations of a loop whose number is unknown before it runs.

It is a convention, not a measurement: large, so that a search prefers work before a loop to
work in it, and small enough that the rest of a step still counts. The plan names each loop
that counts so.
"""


class Counted(Enum):
    """The origin of the number of iterations of a `while`, its parameter `counted`."""

    EXACT = "exact"  # computed from a counter in its condition
    STATED = "stated"  # by the user
    ASSUMED = "assumed"  # `ASSUMED_ITERATIONS`, or a lower limit in its condition


def op_executions(program: Program, times: int = 1) -> Iterator[tuple[Op, int]]:
    """Every op, also in nested programs, with the number of times that it runs in a step.

    A loop's bodies count once per iteration. Every branch of a `cond` counts.
    """
    for op in program.ops:
        yield op, times
        for body in op.bodies:
            yield from op_executions(body, times * num_iterations(op))


def num_iterations(op: Op) -> int:
    """The number of times that the bodies of an op run; 1 if it is no loop.

    For a `while` it is the number that `program/capture/iterations.py` gave the loop. Its
    condition runs once more than that, which is not counted.
    """
    if op.kind == "scan":
        return op.params["length"]
    if op.kind == "while":
        return op.params["iterations"]
    return 1


def repeated_executions(program: Program) -> Iterator[tuple[Op, int]]:
    """Every op, also in nested programs, with its executions if the program is repeated.

    An op that leads to a `total` runs as often as that adds up.
    """
    repeats: dict[Op, int] = {}
    waiting: dict[Atom, int] = {}
    for op in reversed(program.ops):
        times = max((waiting.get(result, 1) for result in op.results), default=1)
        repeats[op] = times
        if op.kind == "total":
            times = op.params["times"]
        for atom in op.operands:
            waiting[atom] = max(times, waiting.get(atom, 1))
    for op in program.ops:
        yield from op_executions(Program((), (op,), ()), repeats[op])

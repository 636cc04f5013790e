"""Executions of each collective in one step, loops multiplied."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.program.ir import Op, Program
from meshwright.program.ops import COLLECTIVES


def executions(program: Program, times: int = 1) -> Iterator[tuple[Op, int]]:
    """Every collective with the number of times that it runs in a step.

    A scan's body runs `length` times. A `while` counts once, since its trip count is not
    known. Every branch of a `cond` counts.
    """
    for op in program.ops:
        if op.kind in COLLECTIVES:
            yield op, times
        inner = times
        if op.kind == "scan":
            length = op.params["length"]
            assert isinstance(length, int)
            inner = times * length
        for body in op.bodies:
            yield from executions(body, inner)


def count_collectives(program: Program) -> dict[str, int]:
    """Executions by kind of collective; a `cond` counts as its busiest branch."""
    counts: dict[str, int] = dict.fromkeys(COLLECTIVES, 0)
    for op in program.ops:
        if op.kind in COLLECTIVES:
            counts[op.kind] += 1
        if not op.bodies:
            continue
        inner = [count_collectives(body) for body in op.bodies]
        times = op.params["length"] if op.kind == "scan" else 1
        assert isinstance(times, int)
        for kind in counts:
            each = [c[kind] for c in inner]
            counts[kind] += times * (max(each) if op.kind == "cond" else sum(each))
    return counts

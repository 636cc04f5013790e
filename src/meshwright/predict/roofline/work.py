"""The work of a whole program: its ops, loops multiplied."""

from __future__ import annotations

from meshwright.program.ir import Op, Program
from meshwright.program.ops import OpWork, work_of


def program_work(program: Program) -> OpWork:
    """The operations of one run.

    A scan's body counts `length` times; a `while`, whose trip count is not known, once;
    of a `cond` the branch with most.
    """
    total = OpWork()
    for op in program.ops:
        total += work_of(op)
        if op.bodies:
            total += _region_work(op)
    return total


def _region_work(op: Op) -> OpWork:
    inner = [program_work(body) for body in op.bodies]
    if op.kind == "cond":
        return max(inner, key=lambda work: (work.flops, work.transcendentals))
    total = sum(inner, OpWork())
    if op.kind != "scan":
        return total
    length = op.params["length"]
    assert isinstance(length, int), f"a scan of length {length!r}"
    return total * length

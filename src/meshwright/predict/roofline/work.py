"""Operations of a whole program, loops multiplied by their trip counts."""

from meshwright.program.analysis.executions import num_iterations
from meshwright.program.ir import Op, Program
from meshwright.program.ops import OpWork, work_of


def program_work(program: Program) -> OpWork:
    """Operations of one run.

    A scan's body counts `length` times, the body of a `while` once, since its trip
    count is unknown, and a `cond` like its largest branch.
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
    return total * num_iterations(op)

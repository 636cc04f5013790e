"""Operations of a whole program, loops multiplied by their trip counts."""

from meshwright.program.analysis.executions import num_iterations
from meshwright.program.ir import Op, Program
from meshwright.program.ops import OpWork, work_of


def program_work(program: Program) -> OpWork:
    """Operations of one run.

    A loop's bodies count once per iteration, and a `cond` like its largest branch.
    """
    flops, transcendentals = 0, 0
    for op in program.ops:
        work = _region_work(op) if op.bodies else work_of(op)
        flops += work.flops
        transcendentals += work.transcendentals
    return OpWork(flops, transcendentals)


def _region_work(op: Op) -> OpWork:
    """The work of all iterations of a loop, or of the largest branch."""
    inner = [program_work(body) for body in op.bodies]
    if op.kind == "cond":
        return max(inner, key=lambda work: (work.flops, work.transcendentals))
    total = sum(inner, OpWork())
    return total * num_iterations(op)

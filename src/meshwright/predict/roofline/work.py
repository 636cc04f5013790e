"""Operations of a whole program, loops multiplied by their trip counts."""

from functools import partial

from meshwright.program.analysis.executions import num_iterations
from meshwright.program.ir import Op, Program
from meshwright.program.ops import OpWork, work_of


def program_work(program: Program, with_recomputation: bool = True) -> OpWork:
    """Operations of one run.

    A loop's bodies count once per iteration, and a `cond` like its largest branch.

    with_recomputation: count ops that compute values a second time, too.
    """
    flops, transcendentals = 0, 0
    for op in program.ops:
        if op.is_recomputed and not with_recomputation:
            continue
        work = _region_work(op, with_recomputation) if op.bodies else work_of(op)
        flops += work.flops
        transcendentals += work.transcendentals
    return OpWork(flops, transcendentals)


def recomputed_flops(program: Program) -> int:
    """The operations of one run that compute values a second time."""
    return program_work(program).flops - program_work(program, False).flops


def _region_work(op: Op, with_recomputation: bool) -> OpWork:
    """The work of all iterations of a loop, or of the largest branch."""
    work = partial(program_work, with_recomputation=with_recomputation)
    inner = [work(body) for body in op.bodies]
    if op.kind == "cond":
        return max(inner, key=lambda work: (work.flops, work.transcendentals))
    total = sum(inner, OpWork())
    return total * num_iterations(op)

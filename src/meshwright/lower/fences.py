"""Fences in device programs, where a compiler would fail without."""

from __future__ import annotations

from dataclasses import replace

from meshwright.ir import Op, Value
from meshwright.rules.totals import totals


def fence_totals(loop: Op) -> Op:
    """A loop whose rounded sums stay in their turns.

    before: total + float32(bfloat16(reduce_scatter(x)))
    after: the same with a barrier behind the reduce_scatter

    The TPU compiler takes what a loop adds up out of it, looks through conversions for
    that, and fails where it then finds one that it cannot move ("RET_CHECK failure ...
    while_loop_all_reduce_code_motion.cc", libtpu 0.0.50). So are gradients of a scale
    that a step rounds, in 32 bits, under ZeRO with several batches a step.
    """
    fenced = {
        total.between[0]: total.reduction
        for total in totals(loop)
        if total.reduction.kind == "reduce_scatter" and total.is_rounded
    }
    if not fenced:
        return loop
    ops: list[Op] = []
    for op in loop.bodies[0].ops:
        if op not in fenced:
            ops.append(op)
            continue
        (summed,) = fenced[op].results
        kept = Value(summed.shape, summed.dtype)
        barrier = Op("optimization_barrier", (summed,), (kept,), source=op.source)
        ops += [barrier, replace(op, operands=(kept,))]
    return replace(loop, bodies=(replace(loop.bodies[0], ops=tuple(ops)),))

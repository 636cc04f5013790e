"""Values that a compiler keeps in scratch memory, or not, by the times of kernels."""

from meshwright.machine import Chip
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.compilers.model.kernels import KernelSequence
from meshwright.predict.roofline.kernel_time import Bound, kernel_time
from meshwright.predict.simulate.timeline import COMPUTE, Timeline
from meshwright.program.ir import Value

LARGE_SHARE = 1 / 4
"""A value above this share of scratch memory stays there only if that saves time.

Chosen of 1/16, 1/8 and 1/4 on plans of ten programs for v5e, which libtpu 0.0.50 compiled.
"""


def values_that_save_time(kernels: KernelSequence, chip: Chip) -> set[Value]:
    """Values of kernels that wait for main memory, also those of bodies.

    Of two kernels that compute for longer than their arrays take to pass, neither becomes
    faster if a value between them stays in scratch memory, and XLA prefers others there.
    """
    found: set[Value] = set()
    for each in kernels.kernels:
        for body in each.bodies:
            found |= values_that_save_time(body, chip)
        fusion = each.fusion
        if fusion.kind in (FusionKind.COLLECTIVE, FusionKind.REGION):
            continue
        time = kernel_time(fusion.root, fusion.work, each.traffic(()), chip)
        if time.bound is Bound.MEMORY:
            for part in (fusion, *fusion.merged):
                found.update(part.reads)
                found.update(part.writes)
    return found


def values_with_gaps(timeline: Timeline, longest_s: float) -> set[Value]:
    """Values that lie unused for longer than `longest_s` seconds of computation.

    Collectives take no time here, as in the cost model of XLA's memory space assignment.
    Values of a loop's body are judged within one iteration.
    """
    found: set[Value] = set()
    used_s: dict[Value, float] = {}
    now_s = 0.0
    for span in timeline.spans:
        end_s = now_s
        if span.inner is not None:
            found |= values_with_gaps(span.inner, longest_s)
            end_s += span.repeats * span.inner.busy_s(COMPUTE)
        elif span.stream == COMPUTE:
            end_s += span.end_s - span.start_s
        fusions = span.fusion, *span.fusion.merged
        for value in (v for fusion in fusions for v in fusion.reads):
            if value in used_s:
                if now_s - used_s[value] > longest_s:
                    found.add(value)
                used_s[value] = max(used_s[value], end_s)
        used_s |= {v: end_s for fusion in fusions for v in fusion.writes}
        now_s = end_s
    return found

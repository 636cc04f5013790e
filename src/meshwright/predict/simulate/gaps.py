"""Values that wait for a long time between two kernels that use them."""

from meshwright.predict.simulate.timeline import COMPUTE, Timeline
from meshwright.program.ir import Value


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

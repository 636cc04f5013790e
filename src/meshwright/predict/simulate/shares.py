"""Shares of a step's seconds, by source line and by the resource that limits kernels."""

from collections import defaultdict
from dataclasses import dataclass

from meshwright.predict.simulate.timeline import (
    Timeline,
    collective_overlaps,
    kernel_runs,
)


@dataclass(frozen=True, slots=True)
class LineTime:
    """Seconds of a step for one source line.

    source: `file:line` of the user's code, "" if unknown. compute_s: in kernels.
    exposed_s: in collectives, while nothing is computed.
    """

    source: str
    compute_s: float
    exposed_s: float

    @property
    def seconds(self) -> float:
        """Total seconds of the step on this line."""
        return self.compute_s + self.exposed_s


def line_times(timeline: Timeline) -> list[LineTime]:
    """The time of each source line, the longest first."""
    compute_s: dict[str, float] = defaultdict(float)
    exposed_s: dict[str, float] = defaultdict(float)
    for span, times in kernel_runs(timeline):
        source = str(span.fusion.root.source)
        compute_s[source] += times * (span.end_s - span.start_s)
    for fusion, exposed, _ in collective_overlaps(timeline):
        exposed_s[str(fusion.root.source)] += exposed
    lines = [
        LineTime(source, compute_s.get(source, 0.0), exposed_s.get(source, 0.0))
        for source in sorted({*compute_s, *exposed_s})
    ]
    return sorted(lines, key=lambda line: -line.seconds)


def bound_times(timeline: Timeline) -> dict[str, float]:
    """Seconds of computation by the resource that limits it, the longest first."""
    seconds: dict[str, float] = defaultdict(float)
    for span, times in kernel_runs(timeline):
        if span.bound is not None:
            seconds[span.bound.value] += times * (span.end_s - span.start_s)
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))

"""Points of the roofline plot: operations, bytes and seconds of a step's kernels.

Operations are counted as in the cost model, where a transcendental counts as several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.app.report.markup import kind_of_span
from meshwright.app.report.trace_events import bound_of
from meshwright.predict.compilers.hlo.fusion import FusionKind
from meshwright.predict.roofline.kernel_time import TRANSCENDENTAL_FLOPS
from meshwright.predict.simulate.timeline import Span, Timeline

if TYPE_CHECKING:
    from meshwright.predict.estimate import Estimate


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """Kernels with the same source line, op, operations and bytes.

    flops, num_bytes: of one execution. times, seconds: of all executions in a step.
    """

    source: str
    op: str
    kind: str
    bound: str
    flops: int
    num_bytes: float
    times: int
    seconds: float

    @property
    def rate(self) -> float:
        """Operations per second while the kernel runs."""
        return self.flops * self.times / self.seconds

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: operations per byte; infinite for no bytes."""
        return self.flops / self.num_bytes if self.num_bytes else math.inf


def roofline_points(estimate: Estimate) -> list[RooflinePoint]:
    """The points of a step, the longest total time first."""
    groups: dict[tuple[str, str, str, str, int, float], tuple[int, float]] = {}
    for span, times in _computing(estimate.timeline):
        work = span.fusion.work
        flops = work.flops + TRANSCENDENTAL_FLOPS * work.transcendentals
        key = (
            str(span.fusion.root.source),
            span.fusion.root.kind,
            kind_of_span(span),
            bound_of(span),
            flops,
            span.num_bytes,
        )
        count, seconds = groups.get(key, (0, 0.0))
        seconds += times * (span.end_s - span.start_s)
        groups[key] = count + times, seconds
    points = [
        RooflinePoint(*key, times, seconds) for key, (times, seconds) in groups.items()
    ]
    return sorted(points, key=lambda point: -point.seconds)


def _computing(timeline: Timeline, times: int = 1) -> Iterator[tuple[Span, int]]:
    """Spans of computation, with the number of their executions in a step."""
    for span in timeline.spans:
        if span.inner is not None:
            yield from _computing(span.inner, times * span.repeats)
        elif span.fusion.kind is not FusionKind.COLLECTIVE:
            yield span, times

"""What a step computes, units alike together: operations, bytes and seconds.

Operations are those of the cost model, which counts an exponential as several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.app.report.markup import kind_of_span
from meshwright.app.report.trace_events import bound_of
from meshwright.predict.compilers.xla.fusion import FusionKind
from meshwright.predict.roofline.kernel_time import TRANSCENDENTAL_FLOPS
from meshwright.predict.simulate.timeline import Span, Timeline

if TYPE_CHECKING:
    from meshwright.predict.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Dot:
    """Units alike: one source line, one op, as many operations and bytes.

    seconds: of all their executions in a step. flops, num_bytes: of one.
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
        """Operations a second while it runs."""
        return self.flops * self.times / self.seconds

    @property
    def intensity(self) -> float:
        """Operations for each byte that moves; infinite where all stays on the chip."""
        return self.flops / self.num_bytes if self.num_bytes else math.inf


def find_dots(found: Estimate) -> list[Dot]:
    """The computing units of a step, the longest first."""
    groups: dict[tuple[str, str, str, str, int, float], tuple[int, float]] = {}
    for span, times in _computing(found.timeline):
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
    dots = [Dot(*key, times, seconds) for key, (times, seconds) in groups.items()]
    return sorted(dots, key=lambda dot: -dot.seconds)


def _computing(timeline: Timeline, times: int = 1) -> Iterator[tuple[Span, int]]:
    """Spans that compute, with their executions in a step."""
    for span in timeline.spans:
        if span.inner is not None:
            yield from _computing(span.inner, times * span.repeats)
        elif span.fusion.kind is not FusionKind.COLLECTIVE:
            yield span, times

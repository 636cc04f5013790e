"""A device program in time: one stream of computation, one of communication.

Units run in their order on the computing stream, those that write several values in
one pass as one, and what scratch memory can hold never passes through main memory. A
collective starts when what it reads
is there and the links are free, and runs beside computation until somebody needs what
it makes, where the machine's compiler can do that; else it stands in line with the
rest. All devices do the same, so that one stands for all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshwright.machine.placement import Placement
from meshwright.predict.compilers.xla.fusion import Fusion, FusionKind
from meshwright.predict.compilers.xla.kernels import Kernel, KernelSequence
from meshwright.predict.compilers.xla.latency_hiding import Ahead
from meshwright.predict.roofline.bound import Bound
from meshwright.predict.simulate.known_times import KnownTimes
from meshwright.program.ir import Value
from meshwright.program.records.fast_frozen import fast_frozen

COMPUTE, LINKS = "compute", "links"


@fast_frozen
@dataclass(frozen=True, slots=True)
class Span:
    """One unit on one stream.

    repeats: executions that the span stands for; those of a loop's body lie in it.
    num_bytes: what moves, to and from main memory, each array once, or over the links.
    bound: what limits a computing unit. inner: the body of a loop, once.
    """

    fusion: Fusion
    stream: str
    start_s: float
    end_s: float
    num_bytes: float = 0.0
    bound: Bound | None = None
    repeats: int = 1
    inner: Timeline | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The spans of a step, in order of their start."""

    spans: tuple[Span, ...]
    end_s: float

    def busy_s(self, stream: str) -> float:
        """Seconds in which a stream works, loops multiplied."""
        return sum(
            span.repeats * span.inner.busy_s(stream)
            if span.inner is not None
            else (span.end_s - span.start_s) * (span.stream == stream)
            for span in self.spans
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """What a program runs on.

    is_async: kinds of collectives that run beside computation.
    """

    placement: Placement
    is_async: frozenset[str]


def timeline_of(
    passes: KernelSequence, setting: Setting, prices: KnownTimes | None = None
) -> Timeline:
    """The timeline of one run; bodies of loops are simulated once and multiplied.

    prices: those known so far, of the same setting.
    """
    clock = _Clock(passes, setting, prices or KnownTimes(setting.placement))
    units = [each.fusion for each in passes.kernels]
    ahead = Ahead(units, passes.inputs, setting.is_async)
    for unit in units:
        while clock.free[LINKS] <= clock.free[COMPUTE] and (early := ahead.next()):
            for each in early:
                clock.run(each)
        if ahead.take(unit):
            clock.run(unit)
    return Timeline(tuple(clock.spans), max(clock.free.values(), default=0.0))


class _Clock:
    """When each stream is free, and when each value is there."""

    def __init__(
        self, passes: KernelSequence, setting: Setting, prices: KnownTimes
    ) -> None:
        self.setting = setting
        self.prices = prices
        self.pass_of = {each.fusion: each for each in passes.kernels}
        room = setting.placement.machine.chip.lasting_bytes
        self.on_chip = passes.lives.within(room)
        self.spans: list[Span] = []
        self.free = {COMPUTE: 0.0, LINKS: 0.0}
        self.there: dict[Value, float] = {}

    def run(self, unit: Fusion) -> None:
        """Let one unit run as early as it may."""
        stream = LINKS if unit.kind is FusionKind.COLLECTIVE else COMPUTE
        start, there = self.free[stream], self.there
        for value in unit.reads:
            if value in there and there[value] > start:
                start = there[value]
        waits = unit.kind is FusionKind.COLLECTIVE and (
            unit.root.kind not in self.setting.is_async
        )
        if waits or unit.kind is FusionKind.REGION:
            start = max(start, *self.free.values())
        span = self._span(self.pass_of[unit], stream, start)
        self.spans.append(span)
        self.free[stream] = span.end_s
        if waits or unit.kind is FusionKind.REGION:
            self.free = dict.fromkeys(self.free, span.end_s)
        for value in unit.writes:
            self.there[value] = span.end_s

    def _span(self, each: Kernel, stream: str, start: float) -> Span:
        unit = each.fusion
        if unit.kind is FusionKind.COLLECTIVE:
            seconds = self.prices.collective_s(unit.root, each.num_bytes)
            return Span(unit, stream, start, start + seconds, each.num_bytes)
        if unit.kind is FusionKind.REGION:
            inner, repeats = self._body(each)
            end = start + repeats * inner.end_s
            return Span(unit, stream, start, end, repeats=repeats, inner=inner)
        traffic = each.traffic(self.on_chip)
        time = self.prices.kernel_time(each, traffic)
        end = start + time.seconds
        return Span(unit, stream, start, end, traffic.num_bytes, time.bound)

    def _body(self, each: Kernel) -> tuple[Timeline, int]:
        """The longest body of a region, and how often it runs."""
        op = each.fusion.root
        bodies = [timeline_of(body, self.setting, self.prices) for body in each.bodies]
        longest = max(bodies, key=lambda body: body.end_s)
        length = op.params.get("length", 1) if op.kind == "scan" else 1
        assert isinstance(length, int), f"a scan of length {length!r}"
        return longest, length


def waits_of(timeline: Timeline) -> Iterator[tuple[Fusion, float, float]]:
    """Of each collective the seconds in which nothing is computed beside it, and the rest.

    Those in a loop come once, with the seconds of all turns.
    """
    # When the computing stream works, in order: no two of its spans overlap.
    computing = [s for s in timeline.spans if s.stream == COMPUTE]
    starts = [s.start_s for s in computing]
    ends = [s.end_s for s in computing]
    for span in timeline.spans:
        if span.inner is not None:
            for unit, exposed, hidden in waits_of(span.inner):
                yield unit, span.repeats * exposed, span.repeats * hidden
        elif span.fusion.kind is FusionKind.COLLECTIVE:
            hidden = _overlap(span, starts, ends)
            yield span.fusion, span.end_s - span.start_s - hidden, hidden


def _overlap(span: Span, starts: Sequence[float], ends: Sequence[float]) -> float:
    """Seconds of a span in which something is computed."""
    first, behind = bisect_right(ends, span.start_s), bisect_left(starts, span.end_s)
    return sum(
        min(ends[i], span.end_s) - max(starts[i], span.start_s)
        for i in range(first, behind)
    )

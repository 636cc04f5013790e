"""Timeline of a device program: one stream of kernels, and the links both ways.

Kernels run in their order on the compute stream, and values that fit into scratch
memory never pass through main memory. An asynchronous collective starts when its
operands are ready and the links are free, and overlaps with kernels until one of them
needs its result. Other collectives, and loops, block all streams. On a ring a permute to
the next device takes only one direction of the links, and one to the device before it
only the other; any other collective takes both. All devices run the same program at the
same time, so that one device represents all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from meshwright.machine import Kind
from meshwright.machine.placement import Placement
from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.predict.compilers.model.kernels import Kernel, KernelSequence
from meshwright.predict.compilers.xla.latency_hiding import EarlyStarts
from meshwright.predict.links.best_placement import Traffic
from meshwright.predict.links.collective import COLLECTIVE_S
from meshwright.predict.roofline.kernel_time import (
    Bound,
    KernelTime,
    KernelTraffic,
    kernel_time,
)
from meshwright.program.analysis.executions import num_iterations
from meshwright.program.ir import Op, Value
from meshwright.program.records import fast_frozen

COMPUTE: str = "compute"
LINKS: str = "links"
BACKWARD: str = "links back"
"""Streams; permutes to the device before on a ring run on `BACKWARD`."""

STREAMS: tuple[str, ...] = (COMPUTE, LINKS, BACKWARD)


@fast_frozen
@dataclass(frozen=True, slots=True)
class Span:
    """One fusion on one stream.

    num_bytes: bytes from and to main memory, each array once; for a collective, bytes
        of its whole value.
    bound: the resource that limits a kernel. inner: the timeline of one iteration of a
    loop. repeats: number of iterations of the loop, all of which the span covers.
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
    """Spans of a step, in the order in which they were scheduled."""

    spans: tuple[Span, ...]
    end_s: float

    def busy_s(self, stream: str) -> float:
        """Seconds in which a stream is busy, loops multiplied."""
        return sum(
            span.repeats * span.inner.busy_s(stream)
            if span.inner is not None
            else (span.end_s - span.start_s) * (span.stream == stream)
            for span in self.spans
        )


_LEAST_RING = 3
"""Number of devices from which on a ring's two directions are different links."""


class Setting:
    """A placed mesh, and the kinds of collectives that run asynchronously on it.

    Times are cached by work and traffic, since layers of one model have equal kernels.
    """

    def __init__(self, placement: Placement, async_kinds: frozenset[str]) -> None:
        self.placement = placement
        self.async_kinds = async_kinds
        self._kernels: dict[Hashable, KernelTime] = {}
        self._collectives: dict[Hashable, float] = {}

    def kernel_time(self, each: Kernel, traffic: KernelTraffic) -> KernelTime:
        """The time of a kernel other than a collective, and the resource that limits it."""
        key = each.work, traffic
        known = self._kernels.get(key)
        if known is None:
            chip, fusion = self.placement.machine.chip, each.fusion
            known = kernel_time(fusion.root, fusion.work, traffic, chip)
            self._kernels[key] = known
        return known

    def collective_s(self, each: Kernel) -> float:
        """Seconds of a collective."""
        key = kind, axes, num_bytes = each.fusion.root.kind, each.axes, each.num_bytes
        if key not in self._collectives:
            seconds = COLLECTIVE_S[kind](num_bytes, self.placement.of(axes))
            self._collectives[key] = seconds
        return self._collectives[key]

    def links_of(self, op: Op) -> tuple[str, ...]:
        """The streams that a collective takes; the span lies on the first of them."""
        pairs, axes = op.params.get("pairs"), op.params["axes"]
        if op.kind != "permute" or not isinstance(pairs, tuple):
            return LINKS, BACKWARD
        assert isinstance(axes, tuple)
        segments, count = self.placement.of(axes), len(pairs)
        steps = {(there - here) % count for here, there in pairs}
        is_ring = all(s.is_ring and s.dim.level.kind is Kind.TORUS for s in segments)
        if not is_ring or count < _LEAST_RING or steps not in ({1}, {count - 1}):
            return LINKS, BACKWARD
        return (LINKS,) if steps == {1} else (BACKWARD,)


def timeline_of(kernels: KernelSequence, setting: Setting) -> Timeline:
    """The timeline of one run; bodies of loops are simulated once and multiplied."""
    clock = _Clock(kernels, setting)
    fusions = [each.fusion for each in kernels.kernels]
    ahead = EarlyStarts(fusions, kernels.inputs, setting.async_kinds)
    for fusion in fusions:
        while clock.links_free_s <= clock.free_s[COMPUTE] and (early := ahead.next()):
            for each in early:
                clock.run(each)
        if ahead.start(fusion):
            clock.run(fusion)
    return Timeline(tuple(clock.spans), max(clock.free_s.values(), default=0.0))


class _Clock:
    """The times at which each stream becomes free and each value ready."""

    def __init__(self, kernels: KernelSequence, setting: Setting) -> None:
        self.setting = setting
        self.kernel_of = {each.fusion: each for each in kernels.kernels}
        room = setting.placement.machine.chip.lasting_bytes
        self.on_chip = kernels.on_chip.fitting(room)
        self.spans: list[Span] = []
        self.free_s = dict.fromkeys(STREAMS, 0.0)
        self.ready_s: dict[Value, float] = {}

    @property
    def links_free_s(self) -> float:
        """The time at which the links are free in both directions."""
        return max(self.free_s[LINKS], self.free_s[BACKWARD])

    def run(self, fusion: Fusion) -> None:
        """Schedule a fusion at the earliest time at which it may start."""
        is_collective = fusion.kind is FusionKind.COLLECTIVE
        streams = self.setting.links_of(fusion.root) if is_collective else (COMPUTE,)
        start, ready_s = max(self.free_s[s] for s in streams), self.ready_s
        for value in fusion.reads:
            if value in ready_s and ready_s[value] > start:
                start = ready_s[value]
        blocks = fusion.kind is FusionKind.REGION or (
            is_collective and fusion.root.kind not in self.setting.async_kinds
        )
        if blocks:
            start = max(start, *self.free_s.values())
        span = self._span(self.kernel_of[fusion], streams[0], start)
        self.spans.append(span)
        self.free_s |= dict.fromkeys(streams, span.end_s)
        if blocks:
            self.free_s = dict.fromkeys(self.free_s, span.end_s)
        for value in fusion.writes:
            self.ready_s[value] = span.end_s

    def _span(self, each: Kernel, stream: str, start: float) -> Span:
        fusion = each.fusion
        if fusion.kind is FusionKind.COLLECTIVE:
            seconds = self.setting.collective_s(each)
            return Span(fusion, stream, start, start + seconds, each.num_bytes)
        if fusion.kind is FusionKind.REGION:
            inner, repeats = self._body(each)
            end = start + repeats * inner.end_s
            return Span(fusion, stream, start, end, repeats=repeats, inner=inner)
        traffic = each.traffic(self.on_chip)
        time = self.setting.kernel_time(each, traffic)
        end = start + time.seconds
        return Span(fusion, stream, start, end, traffic.num_bytes, time.bound)

    def _body(self, each: Kernel) -> tuple[Timeline, int]:
        """The timeline of one iteration of a region, and the number of its iterations.

        A `cond` runs one body, of which the longest counts. A loop runs all of its bodies.
        """
        op = each.fusion.root
        bodies = [timeline_of(body, self.setting) for body in each.bodies]
        if op.kind == "cond":
            return max(bodies, key=lambda body: body.end_s), num_iterations(op)
        return _in_sequence(bodies), num_iterations(op)


def _in_sequence(timelines: Sequence[Timeline]) -> Timeline:
    """One timeline of several that run one after another."""
    first, *others = timelines
    for each in others:
        start_s = first.end_s
        later = (
            replace(s, start_s=start_s + s.start_s, end_s=start_s + s.end_s)
            for s in each.spans
        )
        first = Timeline((*first.spans, *later), start_s + each.end_s)
    return first


def kernel_traffic(kernels: KernelSequence, times: int = 1) -> Iterator[Traffic]:
    """The collectives of a program and of its bodies, with their executions in a step."""
    for each in kernels.kernels:
        if each.fusion.kind is FusionKind.COLLECTIVE:
            yield Traffic(each.fusion.root.kind, each.axes, each.num_bytes, times)
        repeats = times * num_iterations(each.fusion.root) if each.bodies else times
        for body in each.bodies:
            yield from kernel_traffic(body, repeats)


def kernel_runs(timeline: Timeline, times: int = 1) -> Iterator[tuple[Span, int]]:
    """Spans of kernels, and the number of times that each is executed in a step."""
    for span in timeline.spans:
        if span.inner is not None:
            yield from kernel_runs(span.inner, times * span.repeats)
        elif span.fusion.kind is not FusionKind.COLLECTIVE:
            yield span, times


def collective_overlaps(timeline: Timeline) -> Iterator[tuple[Fusion, float, float]]:
    """Exposed and hidden seconds of each collective, as (fusion, exposed, hidden).

    A collective is hidden while the compute stream is busy. A collective in a loop is
    listed once, with the seconds of all iterations.
    """
    # Spans of one stream do not overlap, so that both lists are sorted.
    computing = [s for s in timeline.spans if s.stream == COMPUTE]
    starts, ends = [s.start_s for s in computing], [s.end_s for s in computing]
    for span in timeline.spans:
        if span.inner is not None:
            for fusion, exposed, hidden in collective_overlaps(span.inner):
                yield fusion, span.repeats * exposed, span.repeats * hidden
        elif span.fusion.kind is FusionKind.COLLECTIVE:
            hidden = _overlap(span, starts, ends)
            yield span.fusion, span.end_s - span.start_s - hidden, hidden


def _overlap(span: Span, starts: Sequence[float], ends: Sequence[float]) -> float:
    """Seconds of a span during which the compute stream is busy."""
    first, end = bisect_right(ends, span.start_s), bisect_left(starts, span.end_s)
    return sum(
        min(ends[i], span.end_s) - max(starts[i], span.start_s)
        for i in range(first, end)
    )

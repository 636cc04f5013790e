"""A simulated step as trace events, which Perfetto and Chrome's tracing page draw.

The format is Google's "Trace Event Format" (Duca and Sinclair, 2016). Each stream (compute
or link) is a thread of complete events. A loop is an event around the events of its first
iteration. The live memory is a counter.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from meshwright.app.output.files import output_file, write_file
from meshwright.app.record.plan_record import PlanRecord, estimate_of
from meshwright.app.record.step_record import StepRecord
from meshwright.app.report.span_names import SpanNames
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.estimate import Estimate
from meshwright.predict.simulate.timeline import LINKS, STREAMS, Span, Timeline

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlacedSpan:
    """A span of the timeline with its start and end in seconds since the step began.

    For a span in a loop body, the times are those of one iteration.
    """

    span: Span
    start_s: float
    end_s: float


def lay_out(
    timeline: Timeline, most: int = 1, start_s: float = 0.0
) -> Iterator[PlacedSpan]:
    """The spans of a step with absolute times; a loop's body follows the loop's span.

    most: number of iterations of each loop that are laid out; the others look the same.
    start_s: seconds that are added to all times.
    """
    for span in timeline.spans:
        start = start_s + span.start_s
        yield PlacedSpan(span, start, start_s + span.end_s)
        if span.inner is not None:
            for i in range(min(most, span.repeats)):
                yield from lay_out(span.inner, most, start + i * span.inner.end_s)


def memory_over_time(estimate: Estimate) -> list[tuple[float, float, int, int]]:
    """Points of the memory curve: (start_s, end_s, live bytes, index of the fusion).

    Index -1 is before the first fusion. If several fusions start at the same time, only the
    one with the most live bytes is kept.
    """
    spans = estimate.timeline.spans
    starts = {part.root: span.start_s for span in spans for part in span.fusion.parts}
    points = [(0.0, estimate.memory.curve[0], -1)]
    for index, unit in enumerate(estimate.fusions):
        now = max(points[-1][0], starts[unit.root])
        point = now, estimate.memory.curve[index + 1], index
        if now > points[-1][0]:
            points.append(point)
        elif point[1] >= points[-1][1]:
            points[-1] = point
    ends = [*(start for start, _, _ in points[1:]), estimate.step_time_s]
    return [
        (start, end, size, index)
        for (start, size, index), end in zip(points, ends, strict=True)
    ]


def bound_of(span: Span) -> str:
    """The resource that limits a span's speed, as text."""
    if span.bound is not None:
        return span.bound.value
    return LINKS if span.fusion.kind is FusionKind.COLLECTIVE else "its body"


def events_of(plan: PlanRecord, pid: int) -> list[Event]:
    """Trace events of the simulated step of a plan, as one process of this number.

    Times are in microseconds, as the format wants.
    """
    estimate, names = estimate_of(plan), SpanNames(plan)
    machine = estimate.machine
    title = f"{machine.name} x {machine.num_devices}, mesh {plan.mesh}"
    events = named_threads(pid, title, STREAMS)
    events += [_complete(placed, pid, names) for placed in lay_out(estimate.timeline)]
    points = memory_over_time(estimate)
    events += [memory_event(pid, start_s, size) for start_s, _, size, _ in points]
    events.append(memory_event(pid, estimate.step_time_s, estimate.memory.curve[-1]))
    return events


def named_threads(pid: int, title: str, threads: Sequence[str]) -> list[Event]:
    """Events that give a process its title, and its threads their names."""
    names = ("process_name", *("thread_name" for _ in threads))
    return [
        _event("M", name, pid, tid, 0, args={"name": said})
        for tid, (name, said) in enumerate(zip(names, (title, *threads), strict=True))
    ]


def span_event(
    pid: int, tid: int, name: str, times: tuple[float, float], **more: Any
) -> Event:
    """The event of a span; times: its start and its end in seconds."""
    start, end = map(_nanoseconds, times)
    return _event("X", name, pid, tid, start, dur=(end - start) / 1000, **more)


def memory_event(pid: int, seconds: float, num_bytes: float) -> Event:
    """The event that a process has so many bytes of live memory from a time on."""
    at = _nanoseconds(seconds)
    return _event("C", "live memory", pid, 0, at, args={"bytes": num_bytes})


def trace_events(plans: Sequence[StepRecord]) -> list[Event]:
    """Trace events of the simulated steps of plans, each as one process or several."""
    events: list[Event] = []
    for plan in plans:
        last = max((event["pid"] for event in events), default=0)
        events += plan.trace_events(last + 1)
    return events


def write_trace(plans: Sequence[StepRecord], path: str | PathLike[str]) -> None:
    """Write trace events of plans into a JSON file; `PlanError` if it cannot be written."""
    target = output_file(path)
    content = {"displayTimeUnit": "ms", "traceEvents": trace_events(plans)}
    write_file(target, json.dumps(content, separators=(",", ":")).encode())


def _complete(placed: PlacedSpan, pid: int, names: SpanNames) -> Event:
    span = placed.span
    args = {
        "source": str(span.fusion.root.source),
        "kind": span.fusion.kind.value,
        "bound": bound_of(span),
        "bytes": span.num_bytes,
    }
    if reason := names.reason(span):
        args["reason"] = reason
    tid = STREAMS.index(span.stream) + 1  # threads count from 1
    times = placed.start_s, placed.end_s
    kind = span.fusion.kind.value
    return span_event(pid, tid, names.name(span), times, cat=kind, args=args)


def _event(phase: str, name: str, pid: int, tid: int, start: int, **more: Any) -> Event:
    event = {"ph": phase, "name": name, "pid": pid, "tid": tid, "ts": start / 1000}
    return event | more


def _nanoseconds(seconds: float) -> int:
    """Seconds as whole nanoseconds, so that adjacent spans touch when printed."""
    return round(1e9 * seconds)

"""A step on each stream of a device, and the memory that is alive meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.app.output.numbers import nice_ticks, show_bytes, show_seconds
from meshwright.app.record.plan_record import PlanRecord, estimate_of
from meshwright.app.report.live_values import Group, groups_alive
from meshwright.app.report.markup import (
    TIMES,
    Tips,
    kind_of_span,
    legend,
    section,
    text,
)
from meshwright.app.report.trace_events import (
    STREAMS,
    Run,
    bound_of,
    lay_out,
    memory_over_time,
    name_of,
)
from meshwright.predict.compilers.xla.fusion import FusionKind

if TYPE_CHECKING:
    from meshwright.predict.estimate import Estimate

WIDTH, LEFT, RIGHT = 1120, 84, 12
PLOT = WIDTH - LEFT - RIGHT
_LANE, _GAP, _AXIS, _CURVE, _TOP = 46, 10, 30, 210, 22
_MARKS = 4000
"""Spans that are drawn, about; of loops with more only the first turns are."""
_LARGEST = 4
_FAR = 3.0
"""A limit so many times above the peak is told and not drawn: it would flatten all."""


def draw_timeline(plan: PlanRecord, tips: Tips) -> str:
    """The streams as lanes of spans, over the same seconds as the memory below."""
    found = estimate_of(plan)
    runs = list(lay_out(found.timeline, _turns(found)))
    kinds = {kind_of_span(run.span) for run in runs}
    lead = (
        "All devices do the same. Point at a span for its source line; turn the wheel "
        "over it to zoom, drag to move, double-click to see the whole step."
    )
    figures = _streams(found, runs, tips) + _memory(plan, found, tips)
    return section("time", "The step in time", lead, legend(kinds) + figures)


def _turns(found: Estimate) -> int:
    """Turns of each loop to draw."""
    spans = sum(1 for _ in lay_out(found.timeline))
    return max(1, _MARKS // max(spans, 1))


def _x(seconds: float, found: Estimate) -> float:
    return PLOT * seconds / found.step_time_s if found.step_time_s else 0.0


def _frame(name: str, height: int, title: str, found: Estimate, body: str) -> str:
    """A figure whose group of class `zoom` moves with the seconds."""
    bottom = height - _AXIS
    ticks = "".join(
        f'<text x="{LEFT + _x(at, found):.1f}" y="{bottom + 18}">{show_seconds(at)}'
        "</text>"
        for at in nice_ticks(found.step_time_s, 8)
    )
    return (
        f'<svg id="{name}" class="timed" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{title}" data-end="{found.step_time_s!r}" data-left="{LEFT}" '
        f'data-width="{PLOT}" data-bottom="{bottom}">'
        f'<clipPath id="{name}-clip"><rect x="{LEFT}" y="0" width="{PLOT}" '
        f'height="{bottom + 6}"/></clipPath>{body}'
        f'<line class="axis" x1="{LEFT}" x2="{LEFT + PLOT}" y1="{bottom}" '
        f'y2="{bottom}"/><g class="ticks">{ticks}</g></svg>'
    )


# -- streams ---------------------------------------------------------------------------


def _streams(found: Estimate, runs: list[Run], tips: Tips) -> str:
    height = len(STREAMS) * (_LANE + _GAP) + _AXIS
    lanes = "".join(
        f'<text class="lane" x="{LEFT - 10}" y="{_lane(s) + _LANE / 2 + 4}">{s}</text>'
        f'<rect class="empty" x="{LEFT}" y="{_lane(s)}" width="{PLOT}" '
        f'height="{_LANE}"/>'
        for s in STREAMS
    )
    marks = "".join(_mark(run, found, tips) for run in runs)
    body = (
        f'{lanes}<g clip-path="url(#timeline-clip)"><g class="zoom" '
        f'transform="translate({LEFT} 0)">{marks}</g></g><g class="names"></g>'
    )
    return _frame("timeline", height, "what each stream does over time", found, body)


def _lane(stream: str) -> int:
    return STREAMS.index(stream) * (_LANE + _GAP)


def _mark(run: Run, found: Estimate, tips: Tips) -> str:
    """A rectangle; that of a loop stands behind those of its body, in both lanes."""
    span, is_region = run.span, run.span.fusion.kind is FusionKind.REGION
    start, end = _x(run.start_s, found), _x(run.end_s, found)
    y = 0 if is_region else _lane(span.stream)
    height = len(STREAMS) * (_LANE + _GAP) - _GAP if is_region else _LANE
    tip = tips.add(
        str(span.fusion.root.source) or "no source line",
        f"{name_of(span)}: {span.fusion.kind.value}, on {span.stream}",
        f"{show_seconds(run.end_s - run.start_s)}, bound by {bound_of(span)}",
        f"moves {show_bytes(span.num_bytes)}",
        f"starts at {show_seconds(run.start_s)}",
        *(f"with {u.root.kind} at {u.root.source}" for u in span.fusion.parts[1:]),
    )
    return (
        f'<rect class="k-{kind_of_span(span)}" x="{start:.4f}" y="{y}" '
        f'width="{end - start:.4f}" height="{height}" {tip} '
        f'data-name="{text(name_of(span))}"/>'
    )


# -- memory ----------------------------------------------------------------------------


def _memory(plan: PlanRecord, found: Estimate, tips: Tips) -> str:
    """Bytes alive over time; pointing at them tells which values are largest."""
    limit, peak = found.machine.chip.usable_bytes, found.peak_memory_bytes
    is_far = limit > _FAR * peak
    top = 1.06 * max(peak, 0.0 if is_far else limit)

    def y(num_bytes: float) -> float:
        return _TOP + _CURVE * (1 - num_bytes / top)

    levels = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{LEFT + PLOT}" y1="{y(at):.1f}" '
        f'y2="{y(at):.1f}"/><text class="level" x="{LEFT - 10}" y="{y(at) + 4:.1f}">'
        f"{show_bytes(at)}</text>"
        for at in nice_ticks(top, 4)
    )
    points = memory_over_time(found)
    outline = f"M0,{y(0):.2f}" + "".join(
        f"V{y(size):.2f}H{_x(end, found):.4f}"
        for (_, size, _), end in zip(points, _ends(points, found), strict=True)
    )
    given = found.memory.curve[0]
    body = (
        f'{levels}<g clip-path="url(#memory-clip)"><g class="zoom" '
        f'transform="translate({LEFT} 0)"><path class="alive" '
        f'd="{outline}V{y(0):.2f}Z"/><rect class="given" x="0" y="{y(given):.2f}" '
        f'width="{PLOT}" height="{y(0) - y(given):.2f}"/>'
        f"{_hits(plan, points, tips)}</g></g>{_lines(found, y(peak), y(limit), is_far)}"
    )
    height = _TOP + _CURVE + _AXIS
    title = (
        f'<h3>Memory of a device</h3><div class="legend"><span class="chip">'
        f'<i class="given"></i>inputs and state {show_bytes(given)}</span>'
        '<span class="chip"><i class="alive"></i>what the step makes</span></div>'
    )
    return title + _frame("memory", height, "memory alive over time", found, body)


def _ends(points: list[tuple[float, int, int]], found: Estimate) -> list[float]:
    return [*(start for start, _, _ in points[1:]), found.step_time_s]


def _hits(plan: PlanRecord, points: list[tuple[float, int, int]], tips: Tips) -> str:
    """Rectangles that are not seen, one for each moment at which one can point."""
    found, groups = estimate_of(plan), groups_alive(plan, _LARGEST)
    hits: list[str] = []
    for (start, size, index), end in zip(points, _ends(points, found), strict=True):
        unit = found.fusions[index] if index >= 0 else None
        said = (
            (str(unit.root.source) or "no source line", f"while {unit.root.kind} runs")
            if unit
            else ("before the first operation", "")
        )
        largest = [_show_group(group) for group in groups[index + 1]]
        at = f"{show_bytes(size)} alive at {show_seconds(start)}; largest:"
        x, width = _x(start, found), _x(end, found) - _x(start, found)
        hits.append(
            f'<rect class="hit" x="{x:.4f}" y="{_TOP}" width="{width:.4f}" '
            f'height="{_CURVE}" {tips.add(*said, at, *largest)}/>'
        )
    return "".join(hits)


def _show_group(group: Group) -> str:
    """`12.9 GB  4 x dot_general f32[12, 16]  zoo/layers.py:52`."""
    times = f"{group.count} {TIMES} " if group.count > 1 else ""
    name, shape, source = group.alike
    at = f" at {source}" if source else ""
    return f"{show_bytes(group.bytes)}: {times}{name} {shape}{at}"


def _lines(found: Estimate, peak: float, limit: float, is_far: bool) -> str:
    """Where memory is fullest, and how much of it there is."""
    chip, gaps = found.machine.chip, found.memory.fragmentation_bytes
    index = found.memory.peak
    source = str(found.fusions[index].root.source) if index >= 0 else "the inputs"
    said = f"peak {show_bytes(found.peak_memory_bytes)} at {source}"
    if gaps:
        said += f", {show_bytes(gaps)} of it gaps between blocks"
    if found.memory.extra_bytes:
        said += f", {show_bytes(found.memory.extra_bytes)} addresses and padding"
    given = f"limit {show_bytes(chip.usable_bytes)}"
    share = chip.usable_bytes / found.peak_memory_bytes
    right, over = LEFT + PLOT, f'x1="{LEFT}" x2="{LEFT + PLOT}"'
    told = (
        f'<text class="note end" x="{right - 4}" y="14">{given}, {share:.3g} times '
        f"the peak</text>"
        if is_far
        else f'<line class="limit" {over} y1="{limit:.1f}" y2="{limit:.1f}"/>'
        f'<text class="note end" x="{right - 4}" y="{limit - 5:.1f}">{given}</text>'
    )
    return (
        f'<line class="peak" {over} y1="{peak:.1f}" y2="{peak:.1f}"/>'
        f'<text class="note" x="{LEFT + 6}" y="{peak - 5:.1f}">{text(said)}</text>{told}'
    )

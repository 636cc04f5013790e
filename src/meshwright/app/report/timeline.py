"""The report's timeline: spans of each stream over time, above the memory curve.

A span is one fusion or collective with its seconds; a stream is compute, or a link.
"""

from meshwright.app.output.numbers import nice_byte_ticks, nice_ticks, show_seconds
from meshwright.app.record.plan_record import PlanRecord, estimate_of
from meshwright.app.report import markup
from meshwright.app.report import trace_events as trace
from meshwright.app.report.live_values import ValueGroup, live_groups
from meshwright.app.report.markup import TIMES, Tooltips, text
from meshwright.app.report.span_names import SpanNames
from meshwright.machine.memory_size import show_bytes
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.estimate import Estimate

WIDTH, LEFT, RIGHT = 1120, 84, 12
PLOT = WIDTH - LEFT - RIGHT
_LANE, _GAP, _AXIS, _CURVE, _TOP = 46, 10, 30, 210, 22
_MARKS = 4000
"""Approximate largest number of drawn spans; if there are more, only the first
iterations of loops are drawn.
"""
_LARGEST = 4
"""Most groups of live values that a tooltip lists."""
_FAR = 3.0
"""If the memory limit is more than this many times the peak, it is written as text.

A line at its height would leave little room for the curve.
"""


def draw_timeline(plan: PlanRecord, tips: Tooltips) -> str:
    """HTML section: spans of each stream, and below them memory, over the same time."""
    estimate = estimate_of(plan)
    spans = list(trace.lay_out(estimate.timeline, _iterations(estimate)))
    kinds = {markup.kind_of_span(placed.span) for placed in spans}
    lead = (
        "All devices run the same program. Point at a span to see its source line; use "
        "the wheel to zoom, drag to move, and double-click to see the whole step."
    )
    figures = _streams(plan, spans, tips) + _memory(plan, estimate, tips)
    return markup.section(
        "time", "Timeline of the step", lead, markup.legend_of(kinds) + figures
    )


def _iterations(estimate: Estimate) -> int:
    """The number of iterations that are drawn of each loop."""
    spans = sum(1 for _ in trace.lay_out(estimate.timeline))
    return max(1, _MARKS // max(spans, 1))


def _x(seconds: float, estimate: Estimate) -> float:
    return PLOT * seconds / estimate.step_time_s if estimate.step_time_s else 0.0


def _frame(name: str, height: int, title: str, estimate: Estimate, body: str) -> str:
    """SVG of a chart over time, with an axis in seconds.

    body: SVG of the chart. The page's script zooms and moves its group of class `zoom`.
    """
    bottom = height - _AXIS
    ticks = "".join(
        f'<text x="{LEFT + _x(at, estimate):.1f}" y="{bottom + 18}">{show_seconds(at)}'
        "</text>"
        for at in nice_ticks(estimate.step_time_s, 8)
    )
    return (
        f'<svg id="{name}" class="timed" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{title}" data-end="{estimate.step_time_s!r}" data-left="{LEFT}" '
        f'data-width="{PLOT}" data-bottom="{bottom}">'
        f'<clipPath id="{name}-clip"><rect x="{LEFT}" y="0" width="{PLOT}" '
        f'height="{bottom + 6}"/></clipPath>{body}'
        f'<line class="axis" x1="{LEFT}" x2="{LEFT + PLOT}" y1="{bottom}" '
        f'y2="{bottom}"/><g class="ticks">{ticks}</g></svg>'
    )


# -- streams ---------------------------------------------------------------------------


def _streams(plan: PlanRecord, spans: list[trace.PlacedSpan], tips: Tooltips) -> str:
    estimate, names = estimate_of(plan), SpanNames(plan)
    height = len(trace.STREAMS) * (_LANE + _GAP) + _AXIS
    lanes = "".join(
        f'<text class="lane" x="{LEFT - 10}" y="{_lane(s) + _LANE / 2 + 4}">{s}</text>'
        f'<rect class="empty" x="{LEFT}" y="{_lane(s)}" width="{PLOT}" '
        f'height="{_LANE}"/>'
        for s in trace.STREAMS
    )
    marks = "".join(_mark(placed, names, tips) for placed in spans)
    body = (
        f'{lanes}<g clip-path="url(#timeline-clip)"><g class="zoom" '
        f'transform="translate({LEFT} 0)">{marks}</g></g><g class="names"></g>'
    )
    return _frame("timeline", height, "spans of each stream over time", estimate, body)


def _lane(stream: str) -> int:
    return trace.STREAMS.index(stream) * (_LANE + _GAP)


def _mark(placed: trace.PlacedSpan, names: SpanNames, tips: Tooltips) -> str:
    """SVG rectangle for a span.

    The rectangle of a loop covers all streams, behind the spans of the loop's body.
    """
    span, is_region = placed.span, placed.span.fusion.kind is FusionKind.REGION
    estimate, name = estimate_of(names.plan), names.name(span)
    reason = names.reason(span)
    start, end = _x(placed.start_s, estimate), _x(placed.end_s, estimate)
    y = 0 if is_region else _lane(span.stream)
    height = len(trace.STREAMS) * (_LANE + _GAP) - _GAP if is_region else _LANE
    tip = tips.add(
        str(span.fusion.root.source) or "no source line",
        f"{name}: {span.fusion.kind.value}, on {span.stream}",
        f"{show_seconds(placed.end_s - placed.start_s)}, limited by {trace.bound_of(span)}",
        f"transfers {show_bytes(span.num_bytes)}",
        f"starts at {show_seconds(placed.start_s)}",
        *((reason,) if reason else ()),
        *(f"with {u.root.kind} at {u.root.source}" for u in span.fusion.parts[1:]),
    )
    return (
        f'<rect class="k-{markup.kind_of_span(span)}" x="{start:.4f}" y="{y}" '
        f'width="{end - start:.4f}" height="{height}" {tip} '
        f'data-name="{text(name)}"/>'
    )


# -- memory ----------------------------------------------------------------------------


def _memory(plan: PlanRecord, estimate: Estimate, tips: Tooltips) -> str:
    """HTML of the memory curve, with tooltips that list the largest live values."""
    limit, peak = estimate.machine.chip.usable_bytes, estimate.peak_memory_bytes
    is_far = limit > _FAR * peak
    top = 1.06 * max(peak, 0.0 if is_far else limit)

    def y(num_bytes: float) -> float:
        return _TOP + _CURVE * (1 - num_bytes / top)

    levels = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{LEFT + PLOT}" y1="{y(at):.1f}" '
        f'y2="{y(at):.1f}"/><text class="level" x="{LEFT - 10}" y="{y(at) + 4:.1f}">'
        f"{show_bytes(at)}</text>"
        for at in nice_byte_ticks(top, 4)
    )
    points = trace.memory_over_time(estimate)
    outline = f"M0,{y(0):.2f}" + "".join(
        f"V{y(size):.2f}H{_x(end, estimate):.4f}" for _, end, size, _ in points
    )
    given = estimate.memory.curve[0]
    body = (
        f'{levels}<g clip-path="url(#memory-clip)"><g class="zoom" '
        f'transform="translate({LEFT} 0)"><path class="alive" '
        f'd="{outline}V{y(0):.2f}Z"/><rect class="given" x="0" y="{y(given):.2f}" '
        f'width="{PLOT}" height="{y(0) - y(given):.2f}"/>'
        f"{_hover_areas(plan, points, tips)}</g></g>"
        f"{_lines(estimate, y(peak), y(limit), is_far)}"
    )
    height = _TOP + _CURVE + _AXIS
    state = markup.chip("given", f"inputs and state {show_bytes(given)}")
    names = markup.legend([state, markup.chip("alive", "computed values")])
    title = f"<h3>Memory per device</h3>{names}"
    return title + _frame("memory", height, "live memory over time", estimate, body)


def _hover_areas(
    plan: PlanRecord, points: list[tuple[float, float, int, int]], tips: Tooltips
) -> str:
    """SVG of invisible rectangles that carry the tooltips of the memory curve.

    points: the points of the curve, as `memory_over_time` gives them.
    """
    estimate, groups = estimate_of(plan), live_groups(plan, _LARGEST)
    hits: list[str] = []
    for start, end, size, index in points:
        unit = estimate.fusions[index] if index >= 0 else None
        title = (
            (str(unit.root.source) or "no source line", f"while {unit.root.kind} runs")
            if unit
            else ("before the first operation", "")
        )
        largest = [_show_group(group) for group in groups[index + 1]]
        at = f"{show_bytes(size)} live at {show_seconds(start)}; largest:"
        x, width = _x(start, estimate), _x(end, estimate) - _x(start, estimate)
        hits.append(
            f'<rect class="hit" x="{x:.4f}" y="{_TOP}" width="{width:.4f}" '
            f'height="{_CURVE}" {tips.add(*title, at, *largest)}/>'
        )
    return "".join(hits)


def _show_group(group: ValueGroup) -> str:
    """Text about a group of live values, with bytes, number, op, type and source line.

    An example is `12.9 GB: 4 x dot_general f32[12, 16] at zoo/layers.py:52`.
    """
    times = f"{group.count} {TIMES} " if group.count > 1 else ""
    name, shape, source = group.label
    at = f" at {source}" if source else ""
    return f"{show_bytes(group.bytes)}: {times}{name} {shape}{at}"


def _lines(estimate: Estimate, peak: float, limit: float, is_far: bool) -> str:
    """SVG lines and notes for the peak memory and the memory limit.

    peak, limit: heights of the lines. is_far: write the limit as text only.
    """
    chip, gaps = estimate.machine.chip, estimate.memory.fragmentation_bytes
    index = estimate.memory.peak
    source = str(estimate.fusions[index].root.source) if index >= 0 else "the inputs"
    note = f"peak {show_bytes(estimate.peak_memory_bytes)} at {source}"
    if gaps:
        note += f", {show_bytes(gaps)} of it fragmentation"
    if estimate.memory.extra_bytes:
        note += f", {show_bytes(estimate.memory.extra_bytes)} addresses and padding"
    given = f"limit {show_bytes(chip.usable_bytes)}"
    share = chip.usable_bytes / estimate.peak_memory_bytes
    right, over = LEFT + PLOT, f'x1="{LEFT}" x2="{LEFT + PLOT}"'
    limit_line = (
        f'<text class="note end" x="{right - 4}" y="14">{given}, {share:.3g} times '
        f"the peak</text>"
        if is_far
        else f'<line class="limit" {over} y1="{limit:.1f}" y2="{limit:.1f}"/>'
        f'<text class="note end" x="{right - 4}" y="{limit - 5:.1f}">{given}</text>'
    )
    return (
        f'<line class="peak" {over} y1="{peak:.1f}" y2="{peak:.1f}"/>'
        f'<text class="note" x="{LEFT + 6}" y="{peak - 5:.1f}">{text(note)}</text>'
        f"{limit_line}"
    )

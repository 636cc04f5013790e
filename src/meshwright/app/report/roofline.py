"""The roofline plot of the report: kernels' FLOP/s over their FLOPs per byte.

Williams, Waterman, Patterson, "Roofline" (CACM 2009).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.app.output.collapse import group_by
from meshwright.app.output.numbers import show_seconds, show_share, show_si
from meshwright.app.record.plan_record import PlanRecord, estimate_of
from meshwright.app.report import markup
from meshwright.app.report.markup import KINDS, NONE, Tooltips, kind_of_span, text
from meshwright.app.report.trace_events import bound_of
from meshwright.machine.memory_size import show_bytes
from meshwright.predict.estimate import Estimate
from meshwright.predict.simulate.timeline import kernel_runs

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 430, 78, 46, 14, 14
_LINES = 14
"""Most source lines in the table."""


def draw_roofline(plan: PlanRecord, tips: Tooltips) -> str:
    """HTML section with the roofline plot and a table of the slowest source lines."""
    estimate = estimate_of(plan)
    every = roofline_points(estimate)
    points = [p for p in every if p.flops and p.num_bytes and p.seconds]
    left_out = sum(p.seconds for p in every if not p.flops or not p.num_bytes)
    lead = (
        "Each dot stands for all kernels with the same source line, operations and bytes; "
        "its area grows with their seconds in a step. Kernels without operations, or "
        f"without bytes to main memory, have no dot; they take {show_seconds(left_out)}."
    )
    plot = _plot(estimate, points, tips) if points else "<p>Nothing is computed.</p>"
    body = (
        f'<div class="pair"><div>{plot}{markup.legend_of({p.kind for p in points})}</div>'
        f"<div>{_hottest(estimate, every)}</div></div>"
    )
    return markup.section("roofline", "Roofline of the computation", lead, body)


def _hottest(estimate: Estimate, points: Sequence[RooflinePoint]) -> str:
    """An HTML table of source lines, sorted by their compute time."""
    lines = group_by(points, lambda point: point.source)
    seconds = {source: sum(p.seconds for p in group) for source, group in lines.items()}
    order = sorted(lines, key=lambda source: -seconds[source])[:_LINES]
    rows: list[str] = []
    for source in order:
        first, total_s = lines[source][0], seconds[source]
        shown = show_seconds(total_s), show_share(total_s / estimate.step_time_s)
        bar = markup.bar(f"k-{first.kind}", 100 * total_s / seconds[order[0]])
        rows.append(
            f"<tr><td><code>{text(source or NONE)}</code></td>{markup.numbers(*shown)}"
            f"<td>{text(first.bound)}</td>{bar}</tr>"
        )
    return markup.table(("source line", ">seconds", ">of step", "limited by", ""), rows)


# -- the plot --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scale:
    """A logarithmic axis of the plot.

    low, high: the range of values. begin, end: the coordinates of that range.
    """

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """The coordinate of a value.

        A value outside the range gets the coordinate of the nearest end.
        """
        inside = min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return self.begin + (self.end - self.begin) * share

    def decades(self) -> list[float]:
        """The powers of ten within the range of the axis."""
        first = math.ceil(math.log10(self.low) - 1e-9)
        last = math.floor(math.log10(self.high) + 1e-9)
        return [float(f"1e{power}") for power in range(first, last + 1)]


def _plot(estimate: Estimate, points: list[RooflinePoint], tips: Tooltips) -> str:
    chip = estimate.machine.chip
    matrix, ridge = chip.half_flops_per_s, chip.half_flops_per_s / chip.hbm_bytes_per_s
    lowest = min(point.intensity for point in points)
    highest = max(point.intensity for point in points)
    x = _Scale(
        _round_down(max(lowest, ridge * 1e-5)),
        max(2 * highest, 8 * ridge),
        _LEFT,
        _WIDTH - _RIGHT,
    )
    slowest = min(min(point.rate for point in points), x.low * chip.hbm_bytes_per_s)
    y = _Scale(
        _round_down(max(slowest, matrix * 1e-6)), 5 * matrix, _HEIGHT - _BOTTOM, _TOP
    )
    longest = points[0].seconds
    marks = [_grid(x, y)]
    for point in points:
        radius = 2.2 + 11 * math.sqrt(point.seconds / longest)
        marks.append(
            f'<circle class="k-{point.kind}" cx="{x.at(point.intensity):.1f}" '
            f'cy="{y.at(point.rate):.1f}" r="{radius:.1f}" {_tip(point, tips)}/>'
        )
    marks.append(_roofs(estimate, x, y))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="roofline">'
        f"{''.join(marks)}</svg>"
    )


def _round_down(value: float) -> float:
    """The largest power of ten that is at most `value`."""
    return 10.0 ** math.floor(math.log10(value))


def _grid(x: _Scale, y: _Scale) -> str:
    """SVG of grid lines at powers of ten, with numbers, and of the axis titles."""
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    marks = [
        f'<line class="grid" x1="{x.at(at):.1f}" x2="{x.at(at):.1f}" y1="{_TOP}" '
        f'y2="{bottom}"/><text class="tick" x="{x.at(at):.1f}" y="{bottom + 17}">'
        f"{at:,g}</text>"
        for at in x.decades()
    ]
    marks += [
        f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y.at(at):.1f}" '
        f'y2="{y.at(at):.1f}"/><text class="level" x="{_LEFT - 8}" '
        f'y="{y.at(at) + 4:.1f}">{_prefixed(at)}</text>'
        for at in y.decades()
    ]
    return (
        f'{"".join(marks)}<text class="title" x="{(_LEFT + right) / 2}" '
        f'y="{_HEIGHT - 6}">operations per byte</text><text class="title" '
        f'transform="translate(14 {(_TOP + bottom) / 2}) rotate(-90)">'
        "operations per second</text>"
    )


def _prefixed(decade: float) -> str:
    """A power of ten as text with a unit prefix: `100 G` for 1e11."""
    number, _, prefix = show_si(decade, "").partition(" ")
    return f"{float(number):g} {prefix}"


def _roofs(estimate: Estimate, x: _Scale, y: _Scale) -> str:
    """SVG of the peak lines: main memory bandwidth, matrix unit and vector unit."""
    chip, right = estimate.machine.chip, _WIDTH - _RIGHT
    matrix, vector = chip.half_flops_per_s, chip.vector_flops_per_s
    memory = chip.hbm_bytes_per_s
    begin = max(x.low, y.low / memory)
    left, low = x.at(begin), y.at(begin * memory)
    ridge, top = x.at(matrix / memory), y.at(matrix)
    angle = math.degrees(math.atan2(top - low, ridge - left))
    far = 0.66
    return (
        f'<path class="roof" d="M{left:.1f},{low:.1f}L{ridge:.1f},{top:.1f}H{right}"/>'
        f'<path class="roof thin" d="M{x.at(vector / memory):.1f},{y.at(vector):.1f}'
        f'H{right}"/>'
        f'<text class="note end" x="{right - 4}" y="{top - 20:.1f}">matrix unit '
        f'{show_si(matrix, "FLOP/s")}</text><text class="note end" x="{right - 4}" '
        f'y="{y.at(vector) - 6:.1f}">vector unit {show_si(vector, "FLOP/s")}</text>'
        f'<text class="note" text-anchor="middle" transform="translate('
        f"{left + far * (ridge - left):.1f} {low + far * (top - low):.1f}) "
        f'rotate({angle:.2f}) translate(0 -9)">memory {show_si(memory, "B/s")}</text>'
    )


def _tip(point: RooflinePoint, tips: Tooltips) -> str:
    each = point.seconds / point.times
    return tips.add(
        point.source or "no source line",
        f"{point.op}: {KINDS.get(point.kind, point.kind)}, limited by {point.bound}",
        f"{show_si(point.rate, 'FLOP/s')} at {point.intensity:.3g} FLOP per byte",
        f"{show_si(point.flops, 'FLOP')}, {show_bytes(point.num_bytes)}, "
        f"{show_seconds(each)}; {point.times} times per step",
    )


# -- the points ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """One dot of the plot: all kernels with the same source line, op, FLOPs and bytes.

    flops, num_bytes: FLOPs and bytes of one execution. FLOPs are counted as in the cost
        model: a transcendental function counts as several.
    times, seconds: number of executions and total seconds per step.
    bound: the resource that limits the kernels.
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
        """FLOPs per second while the kernels run."""
        return self.flops * self.times / self.seconds

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: FLOPs per byte; infinite if no bytes are moved."""
        return self.flops / self.num_bytes if self.num_bytes else math.inf


def roofline_points(estimate: Estimate) -> list[RooflinePoint]:
    """The dots of a step, the longest total time first."""
    transcendental = int(estimate.machine.chip.transcendental_flops)
    groups: dict[tuple[str, str, str, str, int, float], tuple[int, float]] = {}
    for span, times in kernel_runs(estimate.timeline):
        work = span.fusion.work
        flops = work.flops + transcendental * work.transcendentals
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

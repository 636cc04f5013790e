"""Units under the chip's roofs: what they compute a second, by operations a byte.

Williams, Waterman, Patterson, "Roofline" (CACM 2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.app.output.numbers import show_bytes, show_seconds, show_si
from meshwright.app.record.plan_record import PlanRecord, estimate_of
from meshwright.app.report.dots import Dot, find_dots
from meshwright.app.report.hottest import draw_hottest
from meshwright.app.report.markup import KINDS, Tips, legend, section

if TYPE_CHECKING:
    from meshwright.predict.estimate import Estimate

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 430, 78, 46, 14, 14


def draw_roofline(plan: PlanRecord, tips: Tips) -> str:
    """The plot, beside the lines of code whose units take longest."""
    found = estimate_of(plan)
    every = find_dots(found)
    dots = [d for d in every if d.flops and d.num_bytes and d.seconds]
    left_out = sum(d.seconds for d in every if not d.flops or not d.num_bytes)
    lead = (
        "Each dot is a unit, those alike drawn once; its area grows with the seconds "
        "that they take in a step. What only moves data, or never leaves the chip, has "
        f"no dot: {show_seconds(left_out)}."
    )
    plot = _plot(found, dots, tips) if dots else "<p>Nothing is computed.</p>"
    body = (
        f'<div class="pair"><div>{plot}{legend({d.kind for d in dots})}</div>'
        f"<div>{draw_hottest(found, every)}</div></div>"
    )
    return section("roofline", "Where computation stands", lead, body)


# -- the plot --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scale:
    """A logarithm between two values, drawn from one coordinate to another."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """The coordinate of a value; what lies outside stands at the edge."""
        inside = min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return self.begin + (self.end - self.begin) * share

    def decades(self) -> list[float]:
        """The powers of ten in it."""
        first = math.ceil(math.log10(self.low) - 1e-9)
        last = math.floor(math.log10(self.high) + 1e-9)
        return [float(f"1e{power}") for power in range(first, last + 1)]


def _plot(found: Estimate, dots: list[Dot], tips: Tips) -> str:
    chip = found.machine.chip
    matrix, ridge = chip.half_flops_per_s, chip.half_flops_per_s / chip.hbm_bytes_per_s
    lowest = min(dot.intensity for dot in dots)
    highest = max(dot.intensity for dot in dots)
    x = _Scale(
        _round_down(max(lowest, ridge * 1e-5)),
        max(2 * highest, 8 * ridge),
        _LEFT,
        _WIDTH - _RIGHT,
    )
    slowest = min(min(dot.rate for dot in dots), x.low * chip.hbm_bytes_per_s)
    y = _Scale(
        _round_down(max(slowest, matrix * 1e-6)), 5 * matrix, _HEIGHT - _BOTTOM, _TOP
    )
    longest = dots[0].seconds
    marks = [_grid(x, y)]
    for dot in dots:
        radius = 2.2 + 11 * math.sqrt(dot.seconds / longest)
        marks.append(
            f'<circle class="k-{dot.kind}" cx="{x.at(dot.intensity):.1f}" '
            f'cy="{y.at(dot.rate):.1f}" r="{radius:.1f}" {_tip(dot, tips)}/>'
        )
    marks.append(_roofs(found, x, y))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="roofline">'
        f"{''.join(marks)}</svg>"
    )


def _round_down(value: float) -> float:
    """The power of ten below."""
    return 10.0 ** math.floor(math.log10(value))


def _grid(x: _Scale, y: _Scale) -> str:
    """Lines at powers of ten with their numbers, and what the axes are."""
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
        f'y="{_HEIGHT - 6}">operations a byte</text><text class="title" '
        f'transform="translate(14 {(_TOP + bottom) / 2}) rotate(-90)">'
        "operations a second</text>"
    )


def _prefixed(decade: float) -> str:
    """`100 G`."""
    number, _, prefix = show_si(decade, "").partition(" ")
    return f"{float(number):g} {prefix}"


def _roofs(found: Estimate, x: _Scale, y: _Scale) -> str:
    """What the memory and each unit of the chip allow, with names beside the lines."""
    chip, right = found.machine.chip, _WIDTH - _RIGHT
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


def _tip(dot: Dot, tips: Tips) -> str:
    each = dot.seconds / dot.times
    return tips.add(
        dot.source or "no source line",
        f"{dot.op}: {KINDS.get(dot.kind, dot.kind)}, bound by {dot.bound}",
        f"{show_si(dot.rate, 'FLOP/s')} at {dot.intensity:.3g} FLOP a byte",
        f"{show_si(dot.flops, 'FLOP')}, {show_bytes(dot.num_bytes)}, "
        f"{show_seconds(each)}; {dot.times} times a step",
    )

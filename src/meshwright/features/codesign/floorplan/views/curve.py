"""The way of a search, and its picture: least proxy over time, by stage."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from meshwright.app.output.picture import svg


class SearchPoint(NamedTuple):
    """The costs that a search had reached at one moment.

    proxy: least proxy so far. wirelength, density, congestion: of the best walker then.
    """

    stage: str
    seconds: float
    evaluations: int
    proxy: float
    wirelength: float
    density: float
    congestion: float


_WIDTH, _HEIGHT, _MARGIN = 800.0, 240.0, 48.0
_COLORS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756")


def draw_curve(curve: Sequence[SearchPoint]) -> str:
    """Least proxy over seconds in SVG, each stage in a colour of its own."""
    last = max(curve[-1].seconds, 1e-9)
    low, high = curve[-1].proxy, curve[0].proxy
    span = max(high - low, 1e-9)

    def at(point: SearchPoint) -> str:
        x = _WIDTH * point.seconds / last
        return f"{x:.1f},{_HEIGHT * (1 - (point.proxy - low) / span):.1f}"

    marks: list[str] = []
    names = list(dict.fromkeys(point.stage for point in curve))
    before: SearchPoint | None = None
    for number, name in enumerate(names):
        points = [point for point in curve if point.stage == name]
        shown = [before, *points] if before else points
        color = _COLORS[number % len(_COLORS)]
        marks.append(
            f'<polyline fill="none" stroke="{color}" stroke-width="2" '
            f'points="{" ".join(map(at, shown))}"/>'
        )
        marks.append(
            f'<text x="{_WIDTH - 170}" y="{16 + 18 * number}" fill="{color}">'
            f"{escape(name)}: {points[-1].proxy:.4f}</text>"
        )
        before = points[-1]
    marks.append(f'<text x="-44" y="4">{high:.3f}</text>')
    marks.append(f'<text x="-44" y="{_HEIGHT}">{low:.3f}</text>')
    marks.append(f'<text x="0" y="{_HEIGHT + 20}">0 s</text>')
    marks.append(f'<text x="{_WIDTH - 40}" y="{_HEIGHT + 20}">{last:.0f} s</text>')
    return svg((_WIDTH, _HEIGHT), marks, _MARGIN)

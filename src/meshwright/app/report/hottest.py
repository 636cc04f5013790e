"""The source lines whose computation takes longest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.app.output.numbers import show_seconds, show_share
from meshwright.app.report.markup import NONE, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.app.report.roofline_points import RooflinePoint
    from meshwright.predict.estimate import Estimate

_LINES = 14


def draw_hottest(estimate: Estimate, points: Sequence[RooflinePoint]) -> str:
    """A table of source lines, the longest computation first."""
    lines: dict[str, list[RooflinePoint]] = {}
    for point in points:
        lines.setdefault(point.source, []).append(point)
    order = sorted(lines.items(), key=lambda item: -sum(p.seconds for p in item[1]))
    longest = sum(p.seconds for p in order[0][1]) if order else 1.0
    rows = "".join(
        _hot_row(estimate, source, group, longest) for source, group in order[:_LINES]
    )
    return (
        '<table><thead><tr><th>source line</th><th class="n">seconds</th>'
        '<th class="n">of step</th><th>limited by</th><th></th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _hot_row(
    estimate: Estimate, source: str, points: Sequence[RooflinePoint], longest: float
) -> str:
    seconds = sum(p.seconds for p in points)
    most = points[0]
    width = 100 * seconds / longest
    return (
        f"<tr><td><code>{text(source or NONE)}</code></td>"
        f'<td class="n">{show_seconds(seconds)}</td>'
        f'<td class="n">{show_share(seconds / estimate.step_time_s)}</td>'
        f"<td>{text(most.bound)}</td>"
        f'<td class="bar"><i class="k-{most.kind}" style="width:{width:.2f}%"></i></td>'
        "</tr>"
    )

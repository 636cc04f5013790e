"""An HTML page about policies on a trace: bars of missed bytes, misses over time."""

from collections.abc import Sequence
from html import escape

import numpy as np

from meshwright.app.output.picture import box, page, svg
from meshwright.app.output.table import Table
from meshwright.features.policies.cache.simulate import CacheSimulation
from meshwright.features.policies.cache.trace import Trace
from meshwright.machine.memory_size import show_bytes

_WIDTH, _ROW, _NAMES = 1000.0, 22.0, 110.0
"""Width of a picture, height of a bar with its gap, and width of the names, in pixels."""

_HEIGHT, _PARTS = 260.0, 60
"""Height of the picture of misses over time, and the points of a line."""

_COLORS = (
    "#2f6db5",
    "#e08a2c",
    "#3b9a5f",
    "#a85aa0",
    "#c9473f",
    "#2a9a8b",
    "#6c5fc7",
    "#9b6b43",
    "#6f7890",
    "#b3a125",
)

_LEAD = (
    "For each size of the cache: the share of bytes missed by each policy, best first "
    "(dashed: no policy can miss less), and the share of requests missed over time."
)


def draw_page(
    requests: Trace,
    runs: Sequence[CacheSimulation],
    bounds: Sequence[tuple[int, int, int]],
    table: Table,
) -> str:
    """The page.

    bounds: for each size of the cache, its bytes, the least misses and missed bytes.
    """
    names = list(dict.fromkeys(run.policy for run in runs))
    colors = {name: _COLORS[k % len(_COLORS)] for k, name in enumerate(names)}
    parts = [table.to_html()]
    for capacity, _, missed in bounds:
        of_size = [run for run in runs if run.capacity == capacity]
        parts.append(f"<h2>A cache of {escape(show_bytes(capacity))}</h2>")
        parts.append(_bars(of_size, missed / of_size[0].bytes, colors))
        parts.append("<h3>Requests missed over time</h3>")
        parts.append(_lines(of_size, colors))
    return page("Eviction policies", str(requests), _LEAD, "\n".join(parts))


def _text(x: float, y: float, words: str, more: str = "") -> str:
    """An SVG text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="13" fill="#333" {more}>'
        f"{escape(words)}</text>"
    )


def _bars(runs: Sequence[CacheSimulation], least: float, colors: dict[str, str]) -> str:
    """Bars of missed bytes, the shortest first, and a line for the bound."""
    scale = (_WIDTH - _NAMES - 70) / max(run.byte_miss_ratio for run in runs)
    marks: list[str] = []
    for k, run in enumerate(sorted(runs, key=lambda run: run.byte_miss_ratio)):
        length, top = run.byte_miss_ratio * scale, k * _ROW
        size = (length, _ROW - 5)
        marks.append(box((_NAMES, top), size, colors[run.policy], str(run)))
        end = 'text-anchor="end"'
        marks.append(_text(_NAMES - 8, top + 13, run.policy, end))
        shown = f"{run.byte_miss_ratio:.2%}"
        marks.append(_text(_NAMES + length + 6, top + 13, shown))
    x, bottom = _NAMES + least * scale, len(runs) * _ROW
    marks.append(
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="-4" y2="{bottom}" stroke="#b00" '
        'stroke-dasharray="6 4"/>'
    )
    return svg((_WIDTH, bottom), marks, 10)


def _lines(runs: Sequence[CacheSimulation], colors: dict[str, str]) -> str:
    """Lines of the shares of requests missed in equal parts of the trace, with a legend."""
    parts = min(_PARTS, len(runs[0].hits))
    marks: list[str] = []
    for y in (0.0, 0.25, 0.5, 0.75, 1.0):
        level = _HEIGHT * (1 - y)
        marks.append(
            f'<line x1="{_NAMES}" x2="{_WIDTH}" y1="{level}" y2="{level}" stroke="#ddd"/>'
        )
        marks.append(_text(_NAMES - 8, level + 4, f"{y:.0%}", 'text-anchor="end"'))
    for k, run in enumerate(runs):
        misses = [1 - part.mean() for part in np.array_split(run.hits, parts)]
        step = (_WIDTH - _NAMES) / max(parts - 1, 1)
        points = " ".join(
            f"{_NAMES + i * step:.1f},{_HEIGHT * (1 - share):.1f}"
            for i, share in enumerate(misses)
        )
        color = colors[run.policy]
        marks.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" '
            f'stroke-width="1.6"><title>{escape(run.policy)}</title></polyline>'
        )
        left, top = _NAMES + 112 * (k % 8), _HEIGHT + 18 + 20 * (k // 8)
        marks.append(box((left, top), (12, 12), color, run.policy))
        marks.append(_text(left + 17, top + 11, run.policy))
    return svg((_WIDTH, _HEIGHT + 40 + 20 * (len(runs) // 8)), marks, 10)

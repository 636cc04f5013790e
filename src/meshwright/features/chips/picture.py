"""Pictures of a partition over chips: bars for each chip in SVG, and an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from meshwright.app.output.notebook import folded
from meshwright.app.output.picture import box, limit_line, page, svg
from meshwright.features.chips.problem.chip_module import ChipModule
from meshwright.features.chips.problem.load import ChipLoad

_WIDTH, _HEIGHT, _GAP, _MARGIN = 1000.0, 220.0, 40.0, 14.0
_CELL = '<td style="vertical-align:top;padding-right:1em">'
_LEAD = (
    "Above: seconds of each chip (wide) and of the link behind it (narrow); the dashed "
    "line is the bottleneck. Below: memory of each chip; the dashed line is what it has."
)
_WIDE, _NARROW = (0.05, 0.65), (0.78, 0.14)
"""Left end and width of bars for chips and for links, as shares of a column."""


def draw_svg(load: ChipLoad, module: ChipModule) -> str:
    """An SVG picture with a column per chip: bars of seconds above bars of bytes."""
    column = _WIDTH / module.num_chips
    most_bytes = max(float(load.memory_bytes.max()), module.memory_bytes)
    bottleneck_s = load.bottleneck_s or 1.0
    top, bottom = _HEIGHT, 2 * _HEIGHT + _GAP
    marks: list[str] = []
    for chip in range(module.num_chips):
        x, seconds = chip * column, load.chip_s[chip]
        note = f"chip {chip}: {seconds:.3e} s"
        bars = [(_WIDE, top, seconds / bottleneck_s, "#4a7ebb", note)]
        if chip + 1 < module.num_chips:
            seconds = load.link_s[chip]
            note = f"link {chip} to {chip + 1}: {seconds:.3e} s"
            bars.append((_NARROW, top, seconds / bottleneck_s, "#c0504d", note))
        held = int(load.memory_bytes[chip])
        note = f"chip {chip}: {held} bytes"
        bars.append((_WIDE, bottom, held / most_bytes, "#9bbb59", note))
        for (left, width), base, share, color, note in bars:
            corner = x + left * column, base - _HEIGHT * share
            marks.append(box(corner, (width * column, _HEIGHT * share), color, note))
        marks.append(
            f'<text x="{x + 0.37 * column:.2f}" y="{_HEIGHT + 0.5 * _GAP:.2f}" '
            f'font-family="sans-serif" font-size="11" text-anchor="middle">{chip}</text>'
        )
    full = bottom - _HEIGHT * module.memory_bytes / most_bytes
    marks += [limit_line(_WIDTH, 0.0), limit_line(_WIDTH, full)]
    return svg((_WIDTH, bottom), marks, _MARGIN)


def draw_page(text: str, drawn: str, by_op: Sequence[tuple[str, int]]) -> str:
    """An HTML page with the figures as text, the picture, and the ops of each chip.

    by_op: name and chip of each op.
    """
    ops: dict[int, list[str]] = {}
    for name, chip in by_op:
        ops.setdefault(chip, []).append(name)
    rows = "\n".join(
        f"<tr>{_CELL}chip {chip}</td>{_CELL}{_folded_names(names)}</td></tr>"
        for chip, names in sorted(ops.items())
    )
    body = f"{drawn}<h2>Ops</h2><table>{rows}</table>"
    return page("Partition over chips", text, _LEAD, body)


def _folded_names(names: Sequence[str]) -> str:
    title = f"{len(names)} ops, {names[0]} to {names[-1]}"
    return folded(title, escape(", ".join(names)))

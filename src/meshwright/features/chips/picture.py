"""Pictures of a partition over chips: bars for each chip in SVG, and an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from meshwright.features.chips.problem.chip_module import ChipModule
from meshwright.features.chips.problem.load import ChipLoad

_WIDTH, _HEIGHT, _GAP, _MARGIN = 1000.0, 220.0, 40.0, 14.0
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Partition over chips</title>
<style>body {{ font: 14px sans-serif; margin: 2em; }} svg {{ width: 100%; }}
td {{ vertical-align: top; padding-right: 1em; }}</style>
</head><body><h1>Partition over chips</h1><pre>{text}</pre>
<p>Above: seconds of each chip (wide) and of the link behind it (narrow); the dashed line
is the bottleneck. Below: memory of each chip; the dashed line is what it has.</p>
{drawn}<h2>Ops</h2><table>{rows}</table></body></html>
"""


def draw_svg(load: ChipLoad, module: ChipModule) -> str:
    """An SVG picture with a column per chip: bars of seconds above bars of bytes."""
    column = _WIDTH / module.num_chips
    most_bytes = max(float(load.memory_bytes.max()), module.memory_bytes)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-_MARGIN} {-_MARGIN} '
        f'{_WIDTH + 2 * _MARGIN} {2 * _HEIGHT + _GAP + 2 * _MARGIN}" '
        'font-family="sans-serif" font-size="11">'
    ]
    for chip in range(module.num_chips):
        x = chip * column
        share = load.chip_s[chip] / load.bottleneck_s if load.bottleneck_s else 0.0
        note = f"chip {chip}: {load.chip_s[chip]:.3e} s"
        lines.append(
            _bar(x + 0.05 * column, 0.65 * column, 0.0, share, "#4a7ebb", note)
        )
        if chip + 1 < module.num_chips:
            share = load.link_s[chip] / load.bottleneck_s if load.bottleneck_s else 0.0
            note = f"link {chip} to {chip + 1}: {load.link_s[chip]:.3e} s"
            lines.append(
                _bar(x + 0.78 * column, 0.14 * column, 0.0, share, "#c0504d", note)
            )
        held = int(load.memory_bytes[chip])
        note = f"chip {chip}: {held} bytes"
        top = _HEIGHT + _GAP
        lines.append(
            _bar(
                x + 0.05 * column,
                0.65 * column,
                top,
                held / most_bytes,
                "#9bbb59",
                note,
            )
        )
        lines.append(
            f'<text x="{x + 0.37 * column:.2f}" y="{_HEIGHT + 0.5 * _GAP:.2f}" '
            f'text-anchor="middle">{chip}</text>'
        )
    full = _HEIGHT + _GAP + _HEIGHT * (1 - module.memory_bytes / most_bytes)
    return "\n".join([*lines, _rule(0.0), _rule(full), "</svg>"])


def draw_page(text: str, drawn: str, by_op: Sequence[tuple[str, int]]) -> str:
    """An HTML page with the figures as text, the picture, and the ops of each chip.

    by_op: name and chip of each op.
    """
    ops: dict[int, list[str]] = {}
    for name, chip in by_op:
        ops.setdefault(chip, []).append(name)
    rows = "\n".join(
        f"<tr><td>chip {chip}</td><td><details><summary>{len(names)} ops, "
        f"{escape(names[0])} to {escape(names[-1])}</summary>"
        f"{escape(', '.join(names))}</details></td></tr>"
        for chip, names in sorted(ops.items())
    )
    return _PAGE.format(text=escape(text), drawn=drawn, rows=rows)


def _bar(
    x: float, width: float, top: float, share: float, color: str, note: str
) -> str:
    height = _HEIGHT * share
    return (
        f'<rect x="{x:.2f}" y="{top + _HEIGHT - height:.2f}" width="{width:.2f}" '
        f'height="{height:.2f}" fill="{color}"><title>{escape(note)}</title></rect>'
    )


def _rule(y: float) -> str:
    return (
        f'<line x1="0" x2="{_WIDTH}" y1="{y:.2f}" y2="{y:.2f}" stroke="#b00" '
        'stroke-dasharray="6 4"/>'
    )

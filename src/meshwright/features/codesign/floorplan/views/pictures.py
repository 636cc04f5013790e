"""Pictures of a placement in SVG: its blocks, and maps of a value of each cell."""

from html import escape

import numpy as np

from meshwright.app.output.picture import svg
from meshwright.features.codesign.floorplan.netlist.netlist import NodeKind
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.search.arrays import Floats

_SIDE = 800.0
"""Pixels of the longer side of a picture."""

_LOOKS = {
    NodeKind.MACRO: "macro",
    NodeKind.SOFT: "soft",
    NodeKind.PORT: "port",
    NodeKind.CELL: "soft",
}
_FILLS = {
    "macro": 'fill="#7aa6d8" stroke="#24527e"',
    "soft": 'fill="#f2a65a" fill-opacity="0.35" stroke="none"',
    "port": 'fill="#c33"',
}


def draw_placement(placement: ChipPlacement) -> str:
    """The blocks of a placement: macros, soft macros as they lie, and ports."""
    netlist, canvas = placement.netlist, placement.canvas
    scale = _SIDE / max(canvas.width, canvas.height)
    width = netlist.number("width", netlist.blocks) * scale
    height = netlist.number("height", netlist.blocks) * scale
    marks = [
        f'<rect width="{canvas.width * scale:.1f}" height="{canvas.height * scale:.1f}" '
        'fill="none" stroke="#333"/>'
    ]
    order = sorted(
        range(len(netlist.blocks)),
        key=lambda b: list(_LOOKS).index(netlist.kinds[netlist.blocks[b]]),
    )
    for block in order:
        node = netlist.nodes[netlist.blocks[block]]
        look = _LOOKS[netlist.kinds[netlist.blocks[block]]]
        x, y = placement.x[block] * scale, (canvas.height - placement.y[block]) * scale
        wide, high = (max(s[block], 3.0) for s in (width, height))
        turn = placement.orientations[block]
        marks.append(
            f'<rect class="{look}" data-block="{block}" x="{x - wide / 2:.1f}" '
            f'y="{y - high / 2:.1f}" width="{wide:.1f}" height="{high:.1f}" {_FILLS[look]}>'
            f"<title>{escape(node.name)} {turn}</title></rect>"
        )
    marks.append('<g class="nets" stroke="#d33" fill="none"></g>')
    return svg((canvas.width * scale, canvas.height * scale), marks, 8.0)


def draw_map(values: Floats, name: str) -> str:
    """A value of each cell, [rows, columns], as colours; the first row is the lowest."""
    rows, columns = values.shape
    size = _SIDE / 2 / max(rows, columns)
    top = max(float(values.max()), 1e-12)
    marks = [
        f'<rect x="{column * size:.1f}" y="{(rows - 1 - row) * size:.1f}" '
        f'width="{size:.2f}" height="{size:.2f}" '
        f'fill="{_color(float(values[row, column]) / top)}">'
        f"<title>{escape(name)}, column {column}, row {row}: "
        f"{values[row, column]:.3f}</title></rect>"
        for row, column in np.ndindex(rows, columns)
    ]
    return svg((columns * size, rows * size), marks, 4.0)


def _color(share: float) -> str:
    """White to red by way of yellow."""
    green = 255 - 60 * share if share < 0.5 else 225 * 2 * (1 - share)
    blue = 255 * max(0.0, 1 - 2 * share)
    return f"rgb(255,{green:.0f},{blue:.0f})"

"""A placement of a netlist's blocks, and its file, `.plc`."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

import numpy as np

from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.netlist.canvas import (
    Canvas,
    default_canvas,
)
from meshwright.features.codesign.floorplan.netlist.header import read_header
from meshwright.features.codesign.floorplan.netlist.netlist import Netlist, NodeKind
from meshwright.plain import read_text
from meshwright.search.arrays import Bools, Floats

UPRIGHT = ("N", "FN", "S", "FS")
"""Orientations without a quarter turn, which a placer may choose."""

TURNED = ("E", "FE", "W", "FW")
"""Orientations with a quarter turn. They are read and never chosen."""

_COUNTS = {
    "HARD_MACROs": NodeKind.MACRO,
    "SOFT_MACROs": NodeKind.SOFT,
    "PORTs": NodeKind.PORT,
}
_COLUMN_TITLES = "# node_index x y orientation fixed"


@dataclass(frozen=True, eq=False)
class ChipPlacement:
    """The place of each block of a netlist on a canvas.

    x, y: centres in microns, [blocks].
    orientations: one of `UPRIGHT` or `TURNED`; "-" for ports and cells.
    is_fixed: blocks that a placer must not move; ports always.
    comments: lines of the header that was read.
    """

    netlist: Netlist
    canvas: Canvas
    x: Floats = field(repr=False)
    y: Floats = field(repr=False)
    orientations: tuple[str, ...] = field(repr=False)
    is_fixed: Bools = field(repr=False)
    comments: tuple[str, ...] = field(default=(), repr=False)

    def moved(
        self, x: Floats, y: Floats, orientations: tuple[str, ...]
    ) -> "ChipPlacement":
        """This placement with its blocks at other places."""
        return replace(self, x=x, y=y, orientations=orientations)

    def to_text(self, costs: Mapping[str, str] | None = None) -> str:
        """The text of a `.plc`: the header that was read, or a new one, and all blocks.

        costs: texts of figures of the header by name, such as `Density cost`.
        """
        lines = list(self.comments or _new_header(self))
        for name, value in (costs or {}).items():
            line = f"# {name} : {value}"
            pattern = re.compile(rf"#\s*{re.escape(name)}\s*:")
            at = [i for i, each in enumerate(lines) if pattern.match(each)]
            if at:
                lines[at[0]] = line
            else:
                lines.insert(_after_size(lines), line)
        lines = [line for line in lines if line.strip() != _COLUMN_TITLES]
        rows = zip(
            self.netlist.blocks,
            self.x.tolist(),
            self.y.tolist(),
            self.orientations,
            self.is_fixed.tolist(),
            strict=True,
        )
        places = [f"{i} {_short(x)} {_short(y)} {o} {int(f)}" for i, x, y, o, f in rows]
        return "\n".join([*lines, _COLUMN_TITLES, *places]) + "\n"


def _short(value: float) -> str:
    """A number in the shortest form that reads back as the same number."""
    text = repr(value)
    return text.removesuffix(".0")


def _after_size(lines: list[str]) -> int:
    sizes = [i for i, line in enumerate(lines) if re.match(r"#\s*(Width|Area)\b", line)]
    return sizes[-1] + 1 if sizes else len(lines)


def _new_header(placement: ChipPlacement) -> list[str]:
    netlist, canvas = placement.netlist, placement.canvas
    kinds = Counter(netlist.kinds)
    pins = Counter(
        netlist.kinds[owner]
        for kind, owner in zip(netlist.kinds, netlist.owners, strict=True)
        if kind is NodeKind.PIN
    )
    hard, soft = kinds[NodeKind.MACRO], kinds[NodeKind.SOFT]
    counts = {
        "HARD_MACROs     ": hard,
        "HARD_MACRO_PINs ": pins[NodeKind.MACRO],
        "MACROs          ": hard + soft,
        "MACRO_PINs      ": kinds[NodeKind.PIN],
        "PORTs           ": kinds[NodeKind.PORT],
        "SOFT_MACROs     ": soft,
        "SOFT_MACRO_PINs ": pins[NodeKind.SOFT],
        "STDCELLs        ": kinds[NodeKind.CELL],
    }
    return [
        "# Placement file for Circuit Training",
        f"# Source input file(s) : {netlist.path or '-'}",
        f"# Columns : {canvas.columns}  Rows : {canvas.rows}",
        f"# Width : {_short(canvas.width)}  Height : {_short(canvas.height)}",
        f"# Area (stdcell+macros) : {netlist.area!r}",
        f"# Routes per micron, hor : {canvas.routes_across}  ver : {canvas.routes_up}",
        f"# Routes used by macros, hor : {canvas.macro_across}  ver : {canvas.macro_up}",
        f"# Smoothing factor : {canvas.smoothing}",
        f"# Overlap threshold : {canvas.overlap_threshold}",
        *(
            f"# Blockage : {b.left} {b.bottom} {b.right} {b.top} {b.rate}"
            for b in canvas.blockages
        ),
        "#",
        "# Counts of node types:",
        *(f"# {name}: {count:9}" for name, count in counts.items()),
        "#",
    ]


def start_of(netlist: Netlist, canvas: Canvas | None = None) -> ChipPlacement:
    """The positions that the netlist itself gives its blocks; ports alone are fixed.

    canvas: by default that of Circuit Training's engine.
    """
    blocks = netlist.blocks
    return ChipPlacement(
        netlist,
        canvas or default_canvas(netlist.area),
        netlist.number("x", blocks),
        netlist.number("y", blocks),
        tuple(
            map(_own_orientation, *zip(*((netlist, i) for i in blocks), strict=True))
        ),
        np.array([netlist.kinds[i] is NodeKind.PORT for i in blocks], np.bool_),
    )


def _own_orientation(netlist: Netlist, index: int) -> str:
    if netlist.kinds[index] not in (NodeKind.MACRO, NodeKind.SOFT):
        return "-"
    return netlist.nodes[index].text("orientation") or "N"


def read_canvas(path: str | PathLike[str]) -> Canvas:
    """The canvas that the header of a `.plc` describes."""
    comments, _ = _lines_of(Path(path))
    return read_header(comments, Path(path))


def read_placement(netlist: Netlist, path: str | PathLike[str]) -> ChipPlacement:
    """The placement of a netlist's blocks in a `.plc`.

    A file without any place, as some tools write for netlists with coordinates, leaves
    each block where the netlist has it.
    """
    file = Path(path)
    comments, rows = _lines_of(file)
    _check_counts(netlist, comments, file)
    start = start_of(netlist, read_header(comments, file))
    x, y, is_fixed = start.x.copy(), start.y.copy(), start.is_fixed.copy()
    orientations, seen = list(start.orientations), set[int]()
    for line, row in rows:
        block, left, bottom, orientation, fixed = _row(
            netlist, row, f"line {line} of {file}"
        )
        if block in seen:
            raise FloorplanError(
                f"line {line} of {file} places {_name(netlist, block)!r} a second time"
            )
        seen.add(block)
        x[block], y[block], is_fixed[block] = left, bottom, fixed
        orientations[block] = orientation if orientation != "-" else orientations[block]
    missing = (
        set(netlist.blocks_of(NodeKind.MACRO, NodeKind.SOFT, NodeKind.PORT)) - seen
    )
    if rows and missing:
        raise FloorplanError(
            f"{file} has no place for {_name(netlist, min(missing))!r} and in all "
            f"{len(missing)} blocks; it is of another netlist, or was cut off"
        )
    return ChipPlacement(
        netlist, start.canvas, x, y, tuple(orientations), is_fixed, tuple(comments)
    )


def _name(netlist: Netlist, block: int) -> str:
    return netlist.nodes[netlist.blocks[block]].name


def _lines_of(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Comments of the file, and its other lines with their numbers, cut into words."""
    lines = read_text(path, FloorplanError, "a placement").split("\n")
    comments = [line.rstrip("\r") for line in lines if line.startswith("#")]
    rows = [
        (number, line.split())
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]
    return comments, rows


def _check_counts(netlist: Netlist, comments: list[str], path: Path) -> None:
    for line in comments:
        match = re.match(r"#\s*(\w+)\s*:\s*(\d+)\s*$", line)
        kind = match and _COUNTS.get(match[1])
        if match and kind and int(match[2]) != netlist.kinds.count(kind):
            raise FloorplanError(
                f"{path} is of a netlist with {match[2]} {kind.value}s; this one has "
                f"{netlist.kinds.count(kind)}"
            )


def _row(
    netlist: Netlist, words: list[str], where: str
) -> tuple[int, float, float, str, bool]:
    """Block, x, y, orientation and whether it is fixed, from the words of a line."""
    wanted = "wanted: node_index x y orientation fixed"
    try:
        index, x, y = int(words[0]), float(words[1]), float(words[2])
        orientation, fixed = words[3:]
    except (ValueError, IndexError):
        raise FloorplanError(f"{where} is {' '.join(words)!r:.60}; {wanted}") from None
    if index not in netlist.block_of:
        what = f"node {index}, which is no block of the netlist"
        raise FloorplanError(f"{where} places {what}: it is of another netlist")
    block = netlist.block_of[index]
    if orientation not in (*UPRIGHT, *TURNED, "-") or fixed not in ("0", "1"):
        raise FloorplanError(
            f"{where}: orientation {orientation!r}, fixed {fixed!r}; wanted one of "
            f"{', '.join(UPRIGHT)}, {', '.join(TURNED)}, - and 0 or 1"
        )
    if not (math.isfinite(x) and math.isfinite(y)):
        raise FloorplanError(f"{where} has the place {x}, {y}; wanted numbers")
    return block, x, y, orientation, fixed == "1"

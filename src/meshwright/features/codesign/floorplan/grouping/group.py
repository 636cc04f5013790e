"""Grouping of a flat netlist: its grid, its soft macros, and a placement to begin with."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from meshwright.errors import FloorplanError, did_you_mean
from meshwright.features.codesign.floorplan.grouping.clusters import cluster
from meshwright.features.codesign.floorplan.grouping.grids import choose_grid
from meshwright.features.codesign.floorplan.grouping.soft import (
    first_free,
    with_soft_macros,
)
from meshwright.features.codesign.floorplan.netlist.canvas import Canvas
from meshwright.features.codesign.floorplan.netlist.frame import frame_of
from meshwright.features.codesign.floorplan.netlist.netlist import Netlist, NodeKind
from meshwright.features.codesign.floorplan.netlist.placement import (
    ChipPlacement,
    start_of,
)
from meshwright.plain import read_text
from meshwright.search.arrays import Ints

PARTS = 500
"""Clusters besides those of macros and ports, as published."""

_FEW = 10_000
"""Names among which a near one is looked for."""


def group(
    netlist: Netlist,
    canvas: Canvas | ChipPlacement | None = None,
    *,
    parts: int = PARTS,
    groups: Mapping[str, int] | None = None,
    seed: int = 0,
) -> ChipPlacement:
    """The netlist with soft macros in place of its standard cells, where the cells were.

    Its canvas has the grid that the published rule chooses, or, if no grid holds the macros
    at cell centres, the one it had.

    canvas: canvas, or placement whose canvas and fixed blocks are taken; see `frame_of`.
    parts: clusters besides those around macros and ports.
    groups: cluster of each standard cell by name, in place of our own.
    """
    if parts < 1:
        raise FloorplanError(f"{parts} parts are wanted; allowed: 1 or more")
    if NodeKind.CELL not in netlist.kinds:
        raise FloorplanError("the netlist has no standard cells, so nothing to group")
    frame = frame_of(netlist, canvas)
    hard = [i for i, kind in enumerate(netlist.kinds) if kind is NodeKind.MACRO]
    sizes = (netlist.number(key, hard) for key in ("width", "height"))
    chosen = choose_grid(frame.canvas, *sizes)
    columns, rows = chosen or (frame.canvas.columns, frame.canvas.rows)
    grid = replace(frame.canvas, columns=columns, rows=rows)
    if groups is None:
        clusters = cluster(netlist, grid, parts, seed) + first_free(netlist)
    else:
        clusters = _given(netlist, groups)
    placed = start_of(with_soft_macros(netlist, clusters, grid.cell_width), grid)
    return _with_frame(placed, frame)


def _with_frame(placed: ChipPlacement, frame: ChipPlacement) -> ChipPlacement:
    """A placement with the places of the blocks that another one has too."""
    x, y, is_fixed = placed.x.copy(), placed.y.copy(), placed.is_fixed.copy()
    orientations = list(placed.orientations)
    for name, block in placed.netlist.block_of_name.items():
        before = frame.netlist.block_of_name.get(name)
        if before is not None:
            x[block], y[block] = frame.x[before], frame.y[before]
            is_fixed[block] = frame.is_fixed[before]
            orientations[block] = frame.orientations[before]
    moved = placed.moved(x, y, tuple(orientations))
    return replace(moved, is_fixed=is_fixed)


def _given(netlist: Netlist, groups: Mapping[str, int]) -> Ints:
    """The clusters that were given, by node; every standard cell needs one."""
    cells = {
        node.name
        for node, kind in zip(netlist.nodes, netlist.kinds, strict=True)
        if kind is NodeKind.CELL
    }
    for name in groups:
        if name not in cells:
            near = did_you_mean(name, cells) if len(cells) < _FEW else ""
            raise FloorplanError(
                f"the groups name {name!r}, which is no standard cell of the netlist{near}"
            )
    clusters: Ints = np.full(len(netlist.nodes), -1, np.int64)
    for index, kind in enumerate(netlist.kinds):
        if kind is not NodeKind.CELL:
            continue
        name = netlist.nodes[index].name
        if name not in groups or groups[name] < 0:
            raise FloorplanError(
                f"the groups have no number for the standard cell {name!r}; wanted one of "
                "0 or more for each"
            )
        clusters[index] = groups[name]
    return clusters


def read_groups(path: Path) -> dict[str, int]:
    """The cluster of each standard cell, from lines `name number`."""
    groups: dict[str, int] = {}
    for line, row in enumerate(
        read_text(path, FloorplanError, "groups").split("\n"), 1
    ):
        if not row.strip() or row.startswith("#"):
            continue
        name, *rest = row.rsplit(maxsplit=1)
        if len(rest) != 1 or not rest[0].isdecimal():
            raise FloorplanError(
                f"line {line} of {path} is {row!r:.60}; wanted: cell 17"
            )
        number = int(rest[0])
        if groups.setdefault(name.strip(), number) != number:
            raise FloorplanError(
                f"line {line} of {path} puts {name.strip()!r} in group {number}, after "
                f"group {groups[name.strip()]}"
            )
    return groups

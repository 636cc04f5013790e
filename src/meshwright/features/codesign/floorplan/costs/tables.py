"""A placement as flat arrays, for compiled loops."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.features.codesign.floorplan.netlist.netlist import Netlist, NodeKind
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.search.arrays import Bools, Floats, Ints, starts_of

type Cells = NDArray[np.int32]

TURNS = {
    "N": (1, 0, 0, 1),
    "FN": (-1, 0, 0, 1),
    "S": (-1, 0, 0, -1),
    "FS": (1, 0, 0, -1),
    "E": (0, 1, -1, 0),
    "FE": (0, -1, -1, 0),
    "W": (0, -1, 1, 0),
    "FW": (0, 1, 1, 0),
}
"""Matrix that turns the offset of a pin, by orientation of its macro, row by row."""


class Tables(NamedTuple):
    """What moves do not change: B blocks, N nets, P ends of nets, cells of the grid.

    An end is a place of a net at a block; pins of one net at the same place are one end.
    Nets with equal ends from an equal source are one net, whose weight is the sum.

    width, height: microns, [B]
    is_hard: macros, which must not overlap and which block wires, [B]
    has_area: blocks that count in the density, [B]
    ends_at: first end of each net, its source, [N + 1]
    end_block, end_x, end_y: block and offset of each end, [P]
    wire_weight, track_weight: factor of a net in the wirelength, and in the wires that it
        takes, where a weight below 1 counts as 1, [N]
    touched_at: entries of each block in `touched`, [B + 1]
    touched: ends of each block, in the order of nets, [P]
    end_net: net of each end, [P]
    columns, rows, smoothing: of the grid
    cell_width, cell_height, tracks_across, tracks_up: microns and wires of one cell
    macro_across, macro_up: wires per micron that macros take
    wire_scale: factor from microns to the cost of wirelength
    width_all, height_all: size of the canvas
    """

    width: Floats
    height: Floats
    is_hard: Bools
    has_area: Bools
    ends_at: Ints
    end_block: Cells
    end_x: Floats
    end_y: Floats
    wire_weight: Floats
    track_weight: Floats
    touched_at: Ints
    touched: Ints
    end_net: Ints
    columns: int
    rows: int
    smoothing: int
    cell_width: float
    cell_height: float
    tracks_across: float
    tracks_up: float
    macro_across: float
    macro_up: float
    wire_scale: float
    width_all: float
    height_all: float


def make_tables(placement: ChipPlacement) -> Tables:
    """The arrays of a placement's netlist and canvas."""
    netlist, canvas = placement.netlist, placement.canvas
    blocks = netlist.blocks
    kinds = [netlist.kinds[i] for i in blocks]
    nets, wires, tracks = _nets(netlist)
    ends = np.array([end for net in nets for end in net], np.float64).reshape(-1, 3)
    end_block = ends[:, 0].astype(np.int32)
    total = sum(wires) or 1.0
    net_sizes = [len(net) for net in nets]
    return Tables(
        width=netlist.number("width", blocks),
        height=netlist.number("height", blocks),
        is_hard=np.array([kind is NodeKind.MACRO for kind in kinds]),
        has_area=np.array([kind is not NodeKind.PORT for kind in kinds]),
        ends_at=starts_of(net_sizes),
        end_block=end_block,
        end_x=ends[:, 1].copy(),
        end_y=ends[:, 2].copy(),
        wire_weight=np.array(wires, np.float64),
        track_weight=np.array(tracks, np.float64),
        touched_at=starts_of(np.bincount(end_block, minlength=len(blocks))),
        touched=np.argsort(end_block, kind="stable"),
        end_net=np.repeat(np.arange(len(nets)), net_sizes),
        columns=canvas.columns,
        rows=canvas.rows,
        smoothing=canvas.smoothing,
        cell_width=canvas.cell_width,
        cell_height=canvas.cell_height,
        tracks_across=canvas.cell_height * canvas.routes_across,
        tracks_up=canvas.cell_width * canvas.routes_up,
        macro_across=canvas.macro_across,
        macro_up=canvas.macro_up,
        wire_scale=1 / (total * (canvas.width + canvas.height)),
        width_all=canvas.width,
        height_all=canvas.height,
    )


type _End = tuple[int, float, float]


def _nets(netlist: Netlist) -> tuple[list[tuple[_End, ...]], list[float], list[float]]:
    """Ends of each distinct net, source first, and its two weights."""
    x, y = (
        netlist.number(k, range(len(netlist.nodes))) for k in ("x_offset", "y_offset")
    )
    weights = [float(node.text("weight") or 1.0) for node in netlist.nodes]
    ends: list[_End] = [
        (netlist.block_of[owner], float(x[i]), float(y[i]))
        if netlist.kinds[i] is NodeKind.PIN
        else (netlist.block_of[i], 0.0, 0.0)
        if netlist.kinds[i] in (NodeKind.PORT, NodeKind.CELL)
        else (-1, 0.0, 0.0)
        for i, owner in enumerate(netlist.owners)
    ]
    merged: dict[tuple[_End, tuple[_End, ...]], list[float]] = {}
    for source, sinks in enumerate(netlist.sinks):
        if sinks:
            rest = sorted({ends[each] for each in sinks} - {ends[source]})
            sums = merged.setdefault((ends[source], tuple(rest)), [0.0, 0.0])
            sums[0] += weights[source]
            sums[1] += max(weights[source], 1.0)
    nets = [(source, *rest) for source, rest in merged]
    return nets, [s[0] for s in merged.values()], [s[1] for s in merged.values()]

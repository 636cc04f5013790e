"""The canvas and the fixed blocks of a netlist: what is given before placement."""

from dataclasses import replace
from hashlib import blake2b

import numpy as np

from meshwright.features.codesign.floorplan.netlist.canvas import Canvas
from meshwright.features.codesign.floorplan.netlist.netlist import Netlist
from meshwright.features.codesign.floorplan.netlist.placement import (
    ChipPlacement,
    read_placement,
    start_of,
)


def frame_of(
    netlist: Netlist, canvas: Canvas | ChipPlacement | None = None
) -> ChipPlacement:
    """The canvas and the fixed blocks of a netlist, from the first of these that exists.

    `canvas`; the file `initial.plc` beside the netlist; the defaults of Circuit Training's
    engine. Of blocks that may move nothing is used.
    """
    if isinstance(canvas, ChipPlacement):
        return canvas
    given = placement_beside(netlist) if canvas is None else None
    return given or start_of(netlist, canvas)


def placement_beside(netlist: Netlist) -> ChipPlacement | None:
    """The placement `initial.plc` beside the netlist's file, if there is one."""
    beside = netlist.path and netlist.path.parent / "initial.plc"
    return read_placement(netlist, beside) if beside and beside.exists() else None


def ports_of(netlist: Netlist, canvas: Canvas) -> ChipPlacement:
    """A placement in which nothing is fixed but the ports that the netlist places."""
    start = start_of(netlist, canvas)
    placed = [
        {"x", "y"} <= netlist.nodes[index].attributes.keys() for index in netlist.blocks
    ]
    return replace(start, is_fixed=start.is_fixed & np.array(placed, np.bool_))


def digests_of(frame: ChipPlacement) -> dict[str, str]:
    """Digests of the netlist, the canvas, and the places of fixed blocks, by name.

    The places of other blocks are not among them: a start may be a file in which a search
    puts its best placement.
    """
    kept = frame.is_fixed
    turns = [o for o, k in zip(frame.orientations, kept, strict=True) if k]
    places = [frame.x[kept].tolist(), frame.y[kept].tolist(), kept.tolist(), turns]
    return {
        "netlist": _digest(frame.netlist.to_text()),
        "canvas": _digest(repr(frame.canvas)),
        "set of fixed places": _digest(repr(places)),
    }


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()

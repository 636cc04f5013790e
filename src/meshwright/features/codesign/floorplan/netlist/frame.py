"""The canvas and the fixed blocks of a netlist: what is given before placement."""

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
    beside = netlist.path and netlist.path.parent / "initial.plc"
    if canvas is None and beside and beside.exists():
        return read_placement(netlist, beside)
    return start_of(netlist, canvas)

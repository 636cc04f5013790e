"""Placement of a chip's macros on the exact proxy cost of Circuit Training.

    netlist = floorplan.read("netlist.pb.txt.gz")
    placement = floorplan.read_placement(netlist, "initial.plc")
    floorplan.cost(netlist, placement).proxy()
    floorplan.group(flat_netlist).netlist
    floorplan.place(netlist, seconds=600).save("placed.plc")

Begin reading at `placers/place.py`; the costs are in `costs`.
"""

from meshwright.features.codesign.floorplan.costs.evaluator import (
    WEIGHTS,
    Evaluator,
    PlacementCost,
    cost,
)
from meshwright.features.codesign.floorplan.costs.legality import (
    MacroOverlap,
    faults_of,
    overlaps_of,
)
from meshwright.features.codesign.floorplan.grouping.group import group
from meshwright.features.codesign.floorplan.netlist.canvas import (
    Blockage,
    Canvas,
    default_canvas,
)
from meshwright.features.codesign.floorplan.netlist.netlist import (
    Netlist,
    make_netlist,
    read,
)
from meshwright.features.codesign.floorplan.netlist.placement import (
    ChipPlacement,
    read_canvas,
    read_placement,
    start_of,
)
from meshwright.features.codesign.floorplan.placers.place import frame_of, place
from meshwright.features.codesign.floorplan.views.curve import SearchPoint
from meshwright.features.codesign.floorplan.views.found import (
    FoundPlacement,
    plc_with_costs,
)

__all__ = [
    "WEIGHTS",
    "Blockage",
    "Canvas",
    "ChipPlacement",
    "Evaluator",
    "FoundPlacement",
    "MacroOverlap",
    "Netlist",
    "PlacementCost",
    "SearchPoint",
    "cost",
    "default_canvas",
    "faults_of",
    "frame_of",
    "group",
    "make_netlist",
    "overlaps_of",
    "place",
    "plc_with_costs",
    "read",
    "read_canvas",
    "read_placement",
    "start_of",
]

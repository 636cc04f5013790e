"""Placement of a chip's macros on the exact proxy cost of Circuit Training.

    netlist = floorplan.read("netlist.pb.txt.gz")
    placement = floorplan.read_placement(netlist, "initial.plc")
    floorplan.cost(netlist, placement).proxy()
    floorplan.group(flat_netlist).netlist
    floorplan.place(netlist, seconds=600).save("placed.plc")
    floorplan.train({"chip": placement}, steps=20_000, folder=Path("policy"))
    floorplan.environment(netlist)  # for agents of others

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
from meshwright.features.codesign.floorplan.netlist.frame import frame_of
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
from meshwright.features.codesign.floorplan.placers.place import place
from meshwright.features.codesign.floorplan.policy.environment import environment
from meshwright.features.codesign.floorplan.policy.shipped import shipped_policy
from meshwright.features.codesign.floorplan.policy.training import (
    PlacerTraining,
    TrainingPoint,
    read_floorplan_policy,
    train,
)
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
    "PlacerTraining",
    "SearchPoint",
    "TrainingPoint",
    "cost",
    "default_canvas",
    "environment",
    "faults_of",
    "frame_of",
    "group",
    "make_netlist",
    "overlaps_of",
    "place",
    "plc_with_costs",
    "read",
    "read_canvas",
    "read_floorplan_policy",
    "read_placement",
    "shipped_policy",
    "start_of",
    "train",
]

"""The netlist in which clusters of standard cells are soft macros."""

import re
from collections.abc import Iterable

import numpy as np

from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.grouping.clusters import nets_of
from meshwright.features.codesign.floorplan.netlist.netlist import (
    Netlist,
    NodeKind,
    make_netlist,
)
from meshwright.features.codesign.floorplan.netlist.protobuf import NetlistNode
from meshwright.search.arrays import Ints

BLOATING = 2.0
"""Area of a soft macro over that of its cells."""


def first_free(netlist: Netlist) -> int:
    """The first number from which on no soft macro of the netlist has it in its name."""
    found = (re.match(r"Grp_(\d+)(?:/|$)", node.name) for node in netlist.nodes)
    return max((int(match[1]) + 1 for match in found if match), default=0)


def with_soft_macros(netlist: Netlist, clusters: Ints, width: float) -> Netlist:
    """The netlist with a soft macro `Grp_<number>` for the cells of each cluster.

    As in the published netlists, a soft macro has one pin for all inputs, an output pin for
    each net with several sinks, and one for all nets to the same single sink, whose weight
    is their number. Nets within a cluster are left out. It is as wide as a grid's cell.

    clusters: cluster of each node; that of nodes that are no cells is ignored.
    width: microns.
    """
    cells = [n for n, kind in enumerate(netlist.kinds) if kind is NodeKind.CELL]
    nets = {s: _names(netlist, clusters, s, t) for s, t in nets_of(netlist).items()}
    nodes = [
        _with_inputs(netlist.nodes[n], nets.get(n, ()))
        for n, kind in enumerate(netlist.kinds)
        if kind is not NodeKind.CELL
    ]
    members: dict[int, list[int]] = {}
    for cell in cells:
        members.setdefault(int(clusters[cell]), []).append(cell)
    names = {node.name for node in nodes}
    for number, own in sorted(members.items()):
        if f"Grp_{number}" in names:
            raise FloorplanError(
                f"the netlist has a soft macro Grp_{number} already, so that no group can "
                f"have this number; wanted numbers from {first_free(netlist)} on"
            )
        outputs = [nets[cell] for cell in own if nets.get(cell)]
        nodes += _soft_macro(netlist, f"Grp_{number}", own, outputs, width)
    bloating = {"soft_macro_area_bloating_ratio": f"f: {BLOATING}"}
    head = netlist.metadata or NetlistNode("__metadata__", (), {}, 0)
    metadata = NetlistNode(
        head.name, head.inputs, {**head.attributes, **bloating}, head.line
    )
    return make_netlist([metadata, *nodes])


def _names(
    netlist: Netlist, clusters: Ints, source: int, sinks: Iterable[int]
) -> tuple[str, ...]:
    """The distinct pins that a net drives, those of soft macros but the source's own."""
    is_cell = netlist.kinds[source] is NodeKind.CELL
    own = clusters[source] if is_cell else None
    names: dict[str, None] = {}
    for sink in sinks:
        if netlist.kinds[sink] is not NodeKind.CELL:
            names[netlist.nodes[sink].name] = None
        elif clusters[sink] != own:
            names[f"Grp_{clusters[sink]}/Pinput"] = None
    return tuple(names)


def _with_inputs(node: NetlistNode, inputs: tuple[str, ...]) -> NetlistNode:
    return NetlistNode(node.name, inputs, node.attributes, node.line)


def _soft_macro(
    netlist: Netlist,
    name: str,
    cells: list[int],
    outputs: list[tuple[str, ...]],
    width: float,
) -> list[NetlistNode]:
    """The soft macro of some cells and its pins."""
    area = netlist.number("width", cells) * netlist.number("height", cells)
    total = float(area.sum()) or 1e-6
    weights = area if area.sum() > 0 else np.ones(len(cells))
    place = {
        key: f"f: {float(np.average(netlist.number(key, cells), weights=weights))!r}"
        for key in ("x", "y")
    }
    size = {"height": f"f: {BLOATING * total / width!r}", "width": f"f: {width!r}"}
    kind = {"type": 'placeholder: "macro"'}
    nodes = [NetlistNode(name, (), _in_order(size | kind | place), 0)]
    several = [inputs for inputs in outputs if len(inputs) > 1]
    single: dict[tuple[str, ...], int] = {}
    for inputs in outputs:
        if len(inputs) == 1:
            single[inputs] = single.get(inputs, 0) + 1
    offset = {"x_offset": "f: 0.0", "y_offset": "f: 0.0"}
    pin = {
        "macro_name": f'placeholder: "{name}"',
        "type": 'placeholder: "macro_pin"',
        **place,
        **offset,
    }
    for index, inputs in enumerate(several):
        nodes.append(
            NetlistNode(f"{name}/Poutput_multi_{index}", inputs, _in_order(pin), 0)
        )
    for index, (inputs, count) in enumerate(single.items()):
        weight = {"weight": f"f: {float(count)}"} if count > 1 else {}
        attributes = _in_order(pin | weight)
        nodes.append(
            NetlistNode(f"{name}/Poutput_single_{index}", inputs, attributes, 0)
        )
    return [*nodes, NetlistNode(f"{name}/Pinput", (), _in_order(pin), 0)]


def _in_order(attributes: dict[str, str]) -> dict[str, str]:
    """Attributes by name, as the published netlists have them."""
    return dict(sorted(attributes.items()))

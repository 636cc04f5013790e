"""Clusters of a flat netlist's nodes: around macros and ports, then by their nets."""

from collections.abc import Sequence

import numpy as np

from meshwright.features.codesign.floorplan.grouping.coarsen import coarsen
from meshwright.features.codesign.floorplan.netlist.canvas import Canvas
from meshwright.features.codesign.floorplan.netlist.netlist import Netlist, NodeKind
from meshwright.search.arrays import Floats, Ints

MOST_PINS = 500
"""Nets of more pins are dropped, such as clocks and resets."""

_SHARE = 1 / 4
"""Extent at which clusters are broken up, as a share of the canvas's mean side."""


def nets_of(netlist: Netlist) -> dict[int, tuple[int, ...]]:
    """The distinct sinks of each source, without nets of too many pins."""
    nets: dict[int, tuple[int, ...]] = {}
    for source, sinks in enumerate(netlist.sinks):
        distinct = tuple(dict.fromkeys(sinks))
        if 0 < len(distinct) < MOST_PINS:
            nets[source] = distinct
    return nets


def cluster(netlist: Netlist, canvas: Canvas, parts: int, seed: int) -> Ints:
    """The cluster of each node; macros have none, -1.

    Pins of one macro are a cluster, and ports side by side; cells one net away from such
    a cluster join it. The other cells are merged, most connected first, until there are
    `parts` clusters more. Clusters whose cells lie far apart in the netlist are broken up.
    """
    nets = nets_of(netlist)
    anchors = _anchors(netlist, canvas)
    _join_neighbours(netlist, nets, anchors)
    vertices = np.array([k not in _MACROS for k in netlist.kinds], np.bool_)
    found = coarsen(anchors, vertices, list(nets.items()), parts, seed)
    return _break_up(netlist, canvas, found)


_MACROS = (NodeKind.MACRO, NodeKind.SOFT)


def _anchors(netlist: Netlist, canvas: Canvas) -> Ints:
    """The clusters of macro pins and of ports by node; -1 for all others."""
    anchors: Ints = np.full(len(netlist.nodes), -1, np.int64)
    number_of: dict[int, int] = {}
    for node, kind in enumerate(netlist.kinds):
        if kind is NodeKind.PIN:
            owner = netlist.owners[node]
            anchors[node] = number_of.setdefault(owner, len(number_of))
    number = len(number_of)
    for ports, places, reach in _sides(netlist, canvas):
        first = -np.inf
        for port in np.argsort(places, kind="stable"):
            if places[port] - first > reach:
                first, number = places[port], number + 1
            anchors[ports[port]] = number - 1
    return anchors


def _sides(netlist: Netlist, canvas: Canvas) -> list[tuple[list[int], Floats, float]]:
    """The ports of each side in turn, their places along it, and the size of a cell."""
    ports = [n for n, kind in enumerate(netlist.kinds) if kind is NodeKind.PORT]
    at_side: dict[str, list[int]] = {}
    for port in ports:
        side = (netlist.nodes[port].text("side") or "").upper()
        at_side.setdefault(side, []).append(port)
    order = {"LEFT": 0, "TOP": 1, "RIGHT": 2, "BOTTOM": 3}
    return [
        (members, netlist.number("x", members), canvas.cell_width)
        if side in ("TOP", "BOTTOM")
        else (members, netlist.number("y", members), canvas.cell_height)
        for side, members in sorted(at_side.items(), key=lambda s: order.get(s[0], 4))
    ]


def _join_neighbours(
    netlist: Netlist, nets: dict[int, tuple[int, ...]], anchors: Ints
) -> None:
    """Let each cell one net away from an anchor join it; the first anchor wins."""
    links: list[tuple[int, int]] = []
    for source, sinks in nets.items():
        for sink in sinks:
            for end, cell in ((source, sink), (sink, source)):
                if anchors[end] >= 0 and netlist.kinds[cell] is NodeKind.CELL:
                    links.append((int(anchors[end]), cell))
    for anchor, cell in sorted(links):
        if anchors[cell] < 0:
            anchors[cell] = anchor


def _break_up(netlist: Netlist, canvas: Canvas, clusters: Ints) -> Ints:
    """Cut clusters that spread over more than a quarter of the canvas into tiles."""
    cells = [n for n, kind in enumerate(netlist.kinds) if kind is NodeKind.CELL]
    step = _SHARE * float(np.sqrt(canvas.width * canvas.height))
    x, y = netlist.number("x", cells), netlist.number("y", cells)
    area = netlist.number("width", cells) * netlist.number("height", cells)
    broken, next_free = clusters.copy(), int(clusters.max(initial=-1)) + 1
    members: dict[int, list[int]] = {}
    for place, cell in enumerate(cells):
        members.setdefault(int(clusters[cell]), []).append(place)
    for own in members.values():
        tiles = _tiles(x[own], y[own], area[own], step)
        for tile in sorted(set(tiles) - {(0, 0)}):
            for place, other in zip(own, tiles, strict=True):
                if other == tile:
                    broken[cells[place]] = next_free
            next_free += 1
    return broken


def _tiles(
    x: Floats, y: Floats, area: Floats, step: float
) -> Sequence[tuple[int, int]]:
    """The tile of each cell of a cluster, counted from its centre of area."""
    if max(np.ptp(x), np.ptp(y)) <= step:
        return [(0, 0)] * len(x)
    weights = area if area.sum() > 0 else np.ones(len(x))
    across = np.floor((x - np.average(x, weights=weights)) / step + 0.5).astype(int)
    up = np.floor((y - np.average(y, weights=weights)) / step + 0.5).astype(int)
    return list(zip(across.tolist(), up.tolist(), strict=True))

"""The HTML page about placements: pictures, maps, nets of a block on hover, the curve."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from string import Template

from meshwright.features.codesign.floorplan.costs.evaluator import PlacementCost, cost
from meshwright.features.codesign.floorplan.netlist.netlist import Netlist
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.views.curve import SearchPoint, draw_curve
from meshwright.features.codesign.floorplan.views.pictures import (
    draw_map,
    draw_placement,
)

_MAPS = (
    ("density", "area of blocks, as a share of the cell"),
    ("horizontal wires", "share of the cell's horizontal wires in use"),
    ("vertical wires", "share of the cell's vertical wires in use"),
)


def describe(found: PlacementCost, weights: tuple[float, float, float]) -> list[str]:
    """Lines with the costs of a placement."""
    first, second, third = weights
    return [
        f"wirelength  {found.wirelength:.6f}  ({found.wires:.1f} um)",
        f"density     {found.density:.6f}",
        f"congestion  {found.congestion:.6f}",
        f"proxy       {found.proxy(weights):.6f}  "
        f"({first:g} wirelength + {second:g} density + {third:g} congestion)",
        f"overlaps    {len(found.overlaps)}, macros off the canvas {len(found.outside)}",
    ]


def make_page(
    placements: Mapping[str, ChipPlacement],
    weights: tuple[float, float, float],
    text: str = "",
    curve: Sequence[SearchPoint] = (),
) -> str:
    """An HTML page that shows placements of one netlist beside each other.

    placements: by the name to show. text: figures about the first one.
    """
    costs = {name: cost(p.netlist, p) for name, p in placements.items()}
    netlist = next(iter(placements.values())).netlist
    parts = [_comparison(costs, weights)]
    if curve:
        parts.append(f"<h2>Search</h2>{draw_curve(curve)}")
    parts += [_section(name, p, costs[name]) for name, p in placements.items()]
    return Template(_read("page.html")).substitute(
        title=escape(f"Placement of {netlist.path.name if netlist.path else 'a chip'}"),
        text=escape("\n".join([str(netlist), text]).strip()),
        parts="\n".join(parts),
        nets=json.dumps(_neighbours(netlist), separators=(",", ":")),
        script=_read("page.js"),
    )


def _read(name: str) -> str:
    home = "meshwright.features.codesign.floorplan.views"
    return (resources.files(home) / name).read_text("utf-8")


def _comparison(
    costs: Mapping[str, PlacementCost], weights: tuple[float, float, float]
) -> str:
    """A table with the costs of each placement."""
    titles = ("placement", "wirelength", "density", "congestion", "proxy", "overlaps")
    rows = [
        (
            escape(name),
            *(f"{v:.4f}" for v in (c.wirelength, c.density, c.congestion)),
            f"{c.proxy(weights):.4f}",
            str(len(c.overlaps)),
        )
        for name, c in costs.items()
    ]
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{v}</td>' for v in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _section(name: str, placement: ChipPlacement, found: PlacementCost) -> str:
    """Pictures of one placement."""
    values = (found.cell_density, found.routing.across, found.routing.up)
    maps = "".join(
        f"<figure>{draw_map(v, title)}<figcaption>{title}: {lead}; most "
        f"{v.max():.3f}</figcaption></figure>"
        for (title, lead), v in zip(_MAPS, values, strict=True)
    )
    return (
        f"<section><h2>{escape(name)}</h2><p class='pointed'>Point at a block to see its "
        f"nets.</p><div class='chip'>{draw_placement(placement)}</div>"
        f"<div class='maps'>{maps}</div></section>"
    )


def _neighbours(netlist: Netlist) -> list[list[list[float]]]:
    """The blocks that nets join with each block, and the weights of these nets."""
    joined: list[dict[int, float]] = [{} for _ in netlist.blocks]
    for source, sinks in enumerate(netlist.sinks):
        first = netlist.block_of[netlist.owners[source]]
        weight = float(netlist.nodes[source].text("weight") or 1)
        for block in {netlist.block_of[netlist.owners[sink]] for sink in sinks} - {
            first
        }:
            for a, b in ((first, block), (block, first)):
                joined[a][b] = joined[a].get(b, 0.0) + weight
    return [[[b, w] for b, w in sorted(each.items())] for each in joined]

"""A placement that a search found, with its costs and how it was found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from meshwright.features.codesign.floorplan.costs.evaluator import PlacementCost, cost
from meshwright.features.codesign.floorplan.netlist.files import write_whole
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.views.curve import SearchPoint
from meshwright.features.codesign.floorplan.views.page import describe, make_page
from meshwright.features.codesign.floorplan.views.pictures import draw_placement


@dataclass(frozen=True)
class FoundPlacement:
    """The best placement of a search; it is legal.

    weights: of wirelength, density and congestion in the proxy.
    curve: the way of the search, a point per round.
    evaluations: moves whose exact cost was computed, by all walkers.
    """

    placement: ChipPlacement
    weights: tuple[float, float, float]
    curve: Sequence[SearchPoint] = field(repr=False)
    evaluations: int
    seconds: float
    is_interrupted: bool = False

    @cached_property
    def cost(self) -> PlacementCost:
        """All costs, computed in full."""
        return cost(self.placement.netlist, self.placement)

    @property
    def proxy(self) -> float:
        return self.cost.proxy(self.weights)

    @property
    def gains(self) -> list[tuple[str, int, float, float]]:
        """Name, evaluations, seconds and least proxy at the end, for each stage."""
        ends = {point.stage: point for point in self.curve}
        before, rows = (0, 0.0), list[tuple[str, int, float, float]]()
        for name, end in ends.items():
            spent = (end.evaluations - before[0], end.seconds - before[1])
            rows.append((name, *spent, end.proxy))
            before = (end.evaluations, end.seconds)
        return rows

    def to_plc(self) -> str:
        """The placement as `.plc`, with the published header and its costs."""
        return plc_with_costs(self.placement, self.cost)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the placement as `.plc`; returns its path."""
        write_whole(Path(path), self.to_plc().encode())
        return Path(path)

    def svg(self) -> str:
        """A picture of the placement in SVG."""
        return draw_placement(self.placement)

    def report(
        self,
        path: str | PathLike[str],
        others: Mapping[str, ChipPlacement] | None = None,
    ) -> Path:
        """Write an HTML page: the placement, its maps, the curve; returns its path.

        others: placements by name, with which the page compares this one.
        """
        shown = {"found": self.placement, **(others or {})}
        text = make_page(shown, self.weights, str(self), self.curve)
        write_whole(Path(path), text.encode())
        return Path(path)

    def facts(self) -> dict[str, Any]:
        """How the placement was found, as plain data."""
        names = ("stage", "evaluations", "seconds", "proxy")
        return {
            "evaluations": self.evaluations,
            "seconds": self.seconds,
            "stages": [dict(zip(names, row, strict=True)) for row in self.gains],
        }

    def __str__(self) -> str:
        found = self.cost
        lines = [
            *describe(found, self.weights),
            f"searched    {self.evaluations} moves in {self.seconds:.1f} s"
            + (", interrupted" if self.is_interrupted else ""),
        ]
        lines += [
            f"  {name:16} {count:>10} moves  {seconds:8.1f} s  proxy {proxy:.4f}"
            for name, count, seconds, proxy in self.gains
        ]
        return "\n".join(lines)


def plc_with_costs(placement: ChipPlacement, found: PlacementCost) -> str:
    """The text of a `.plc` whose header has these costs."""
    return placement.to_text(
        {
            "Wirelength": f"{found.wires:.3f}",
            "Wirelength cost": f"{found.wirelength:.4f}",
            "Congestion cost": f"{found.congestion:.4f}",
            "Density cost": f"{found.density:.4f}",
        }
    )

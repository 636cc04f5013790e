"""Whether macros lie on the canvas, apart from each other, upright, and where they must.

Coordinates are compared as the decimal numbers that a `.plc` has, not as binary ones, so
that macros which touch do not overlap, and an overlap of any size counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from meshwright.features.codesign.floorplan.netlist.canvas import Blockage
from meshwright.features.codesign.floorplan.netlist.netlist import NodeKind
from meshwright.features.codesign.floorplan.netlist.placement import (
    TURNED,
    ChipPlacement,
)
from meshwright.search.arrays import Floats

_DOUBT = 1e-6
"""Microns below which an overlap is computed again with exact numbers."""


@dataclass(frozen=True, slots=True)
class MacroOverlap:
    """Two macros that overlap by so many square microns."""

    first: str
    second: str
    area: float

    def __str__(self) -> str:
        return f"{self.first} and {self.second} overlap by {self.area:.6g} um2"


def overlaps_of(
    placement: ChipPlacement, macros: Sequence[int] | None = None
) -> tuple[tuple[str, ...], tuple[MacroOverlap, ...]]:
    """Names of macros that leave the canvas, and pairs of macros that overlap.

    macros: blocks to look at, by default all macros.
    """
    netlist = placement.netlist
    hard = netlist.blocks_of(NodeKind.MACRO) if macros is None else list(macros)
    names = [netlist.nodes[netlist.blocks[b]].name for b in hard]
    indices = [netlist.blocks[b] for b in hard]
    boxes = _Boxes(
        placement.x[hard],
        placement.y[hard],
        netlist.number("width", indices),
        netlist.number("height", indices),
    )
    size = (placement.canvas.width, placement.canvas.height)
    outside = tuple(n for i, n in enumerate(names) if boxes.leaves(i, size))
    pairs = boxes.overlapping()
    overlaps = (MacroOverlap(names[i], names[j], area) for i, j, area in pairs)
    return outside, tuple(overlaps)


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Centres and sizes of macros in microns."""

    x: Floats
    y: Floats
    width: Floats
    height: Floats

    def leaves(self, i: int, size: tuple[float, float]) -> bool:
        """Whether a macro lies partly outside of a canvas of this size."""
        return any(
            exact(centre) - exact(extent) / 2 < 0
            or exact(centre) + exact(extent) / 2 > exact(end)
            for centre, extent, end in (
                (self.x[i], self.width[i], size[0]),
                (self.y[i], self.height[i], size[1]),
            )
        )

    def overlapping(self) -> list[tuple[int, int, float]]:
        """Pairs that overlap, and the area in square microns."""
        pairs: list[tuple[int, int, float]] = []
        for i in range(len(self.x)):
            gap_x = np.abs(self.x[i + 1 :] - self.x[i])
            gap_y = np.abs(self.y[i + 1 :] - self.y[i])
            wide = (self.width[i + 1 :] + self.width[i]) / 2 - gap_x
            high = (self.height[i + 1 :] + self.height[i]) / 2 - gap_y
            for near in np.flatnonzero((wide > -_DOUBT) & (high > -_DOUBT)):
                area = self._overlap(i, i + 1 + int(near))
                if area > 0:
                    pairs.append((i, i + 1 + int(near), area))
        return pairs

    def _overlap(self, i: int, j: int) -> float:
        sides = [
            _common(exact(c[i]), exact(e[i]), exact(c[j]), exact(e[j]))
            for c, e in ((self.x, self.width), (self.y, self.height))
        ]
        return float(sides[0] * sides[1]) if min(sides) > 0 else 0.0


def exact(value: float) -> Fraction:
    """The decimal number that is written for a float."""
    return Fraction(repr(float(value)))


def _common(a: Fraction, a_size: Fraction, b: Fraction, b_size: Fraction) -> Fraction:
    """The length that two intervals have in common, or less than 0."""
    low = max(a - a_size / 2, b - b_size / 2)
    return min(a + a_size / 2, b + b_size / 2) - low


def faults_of(
    placement: ChipPlacement, start: ChipPlacement | None = None
) -> list[str]:
    """Why a placement is not legal, a sentence each; none if it is.

    start: a placement whose canvas, blockages and fixed blocks must have stayed.
    """
    outside, overlaps = overlaps_of(placement)
    faults = [f"{name} leaves the canvas" for name in outside]
    faults += map(str, overlaps)
    netlist = placement.netlist
    for block in netlist.blocks_of(NodeKind.MACRO):
        node = netlist.nodes[netlist.blocks[block]]
        orientation = placement.orientations[block]
        if orientation in TURNED and (node.text("orientation") or "N") not in TURNED:
            faults.append(f"{node.name} is turned by 90 degrees ({orientation})")
    blockages = {**dict.fromkeys(placement.canvas.blockages)}
    if start is not None:
        faults += _canvas_faults(placement, start) + _moved_faults(placement, start)
        blockages |= dict.fromkeys(start.canvas.blockages)
    return faults + _blocked_faults(placement, list(blockages))


def _canvas_faults(placement: ChipPlacement, start: ChipPlacement) -> list[str]:
    """Whether the canvas has another size than at the start, in six digits."""
    now, then = (
        f"{p.canvas.width:g} x {p.canvas.height:g}" for p in (placement, start)
    )
    return [] if now == then else [f"the canvas is {now} um, and was {then}"]


def _moved_faults(placement: ChipPlacement, start: ChipPlacement) -> list[str]:
    """Fixed blocks that are not where, or not turned as, the start has them.

    They are compared in the six digits that Circuit Training writes.
    """
    faults: list[str] = []
    for block in np.flatnonzero(start.is_fixed).tolist():
        now, then = (f"{p.x[block]:g}, {p.y[block]:g}" for p in (placement, start))
        node = placement.netlist.nodes[placement.netlist.blocks[block]]
        if now != then:
            faults.append(f"{node.name} is fixed at {then} and was moved to {now}")
        now, then = (p.orientations[block] for p in (placement, start))
        if now != then:
            faults.append(f"{node.name} is fixed as {then} and was turned to {now}")
    return faults


MACRO_FREE = (0.99, 1.0)
"""Range of rates of blockages in which macros may lie: those for standard cells only."""


def _blocked_faults(
    placement: ChipPlacement, blockages: Sequence[Blockage]
) -> list[str]:
    """Macros that lie in blockages that are closed to them."""
    netlist, faults = placement.netlist, list[str]()
    for area in blockages:
        if MACRO_FREE[0] <= area.rate < MACRO_FREE[1]:
            continue
        for block in netlist.blocks_of(NodeKind.MACRO):
            node = netlist.nodes[netlist.blocks[block]]
            sides = [
                _common(
                    exact(centre),
                    exact(float(node.text(key) or 0)),
                    (exact(low) + exact(high)) / 2,
                    exact(high) - exact(low),
                )
                for centre, key, low, high in (
                    (placement.x[block], "width", area.left, area.right),
                    (placement.y[block], "height", area.bottom, area.top),
                )
            ]
            if min(sides) > 0:
                faults.append(
                    f"{node.name} lies in the blockage at {area.left}, {area.bottom}"
                )
    return faults

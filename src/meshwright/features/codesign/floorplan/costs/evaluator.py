"""The exact cost of a placement: in full, and after each of many moves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.costs.legality import (
    MacroOverlap,
    overlaps_of,
)
from meshwright.features.codesign.floorplan.costs.state import (
    congestion,
    density,
    make_state,
    move_block,
    proxy,
    recompute,
    wirelength,
    write_use,
)
from meshwright.features.codesign.floorplan.costs.tables import (
    TURNS,
    make_tables,
)
from meshwright.features.codesign.floorplan.netlist.netlist import Netlist, NodeKind
from meshwright.features.codesign.floorplan.netlist.placement import (
    TURNED,
    UPRIGHT,
    ChipPlacement,
)
from meshwright.search.arrays import Floats

WEIGHTS = (1.0, 0.5, 0.5)
"""Weights of wirelength, density and congestion that all published tables use."""


def check_weights(weights: Sequence[float]) -> tuple[float, float, float]:
    """Three weights of the proxy; fails for others, and for negative ones."""
    if len(weights) != 3 or not all(w >= 0 and math.isfinite(w) for w in weights):
        raise FloorplanError(
            f"weights are {tuple(weights)}; wanted three numbers of 0 or more, for "
            "wirelength, density and congestion, such as 1,0.5,0.5"
        )
    first, second, third = map(float, weights)
    return first, second, third


@dataclass(frozen=True, slots=True)
class Routing:
    """Shares of the wires of each cell that are in use, [rows, columns].

    across: horizontal wires. up: vertical wires. Macros' share is in them.
    """

    across: Floats
    up: Floats


@dataclass(frozen=True)
class PlacementCost:
    """The costs of a placement (Circuit Training).

    wirelength, density, congestion: without unit.
    wires: wirelength in microns, each net times its weight.
    routing, cell_density: the values of each cell, [rows, columns].
    overlaps: pairs of macros that overlap. outside: macros that leave the canvas.
    """

    wirelength: float
    density: float
    congestion: float
    wires: float
    routing: Routing = field(repr=False)
    cell_density: Floats = field(repr=False)
    overlaps: tuple[MacroOverlap, ...] = field(repr=False)
    outside: tuple[str, ...] = field(repr=False)

    def proxy(self, weights: Sequence[float] = WEIGHTS) -> float:
        """The weighted sum of wirelength, density and congestion."""
        first, second, third = check_weights(weights)
        return first * self.wirelength + second * self.density + third * self.congestion


def cost(netlist: Netlist, placement: ChipPlacement) -> PlacementCost:
    """The exact costs of a placement, computed in full."""
    _check_netlist(netlist, placement)
    return Evaluator(netlist, placement).cost()


def _check_netlist(netlist: Netlist, placement: ChipPlacement) -> None:
    if placement.netlist is not netlist:
        raise FloorplanError(
            "the placement is of another netlist; read it with this one: "
            "read_placement(netlist, path)"
        )


class Evaluator:
    """The costs of a placement whose blocks move, updated by what each move touches.

    A block is named, or given by its position in `netlist.blocks`.
    """

    def __init__(
        self,
        netlist: Netlist,
        placement: ChipPlacement,
        weights: Sequence[float] = WEIGHTS,
    ) -> None:
        _check_netlist(netlist, placement)
        self._placement = placement
        self._weights = np.array(check_weights(weights))
        self._orientations = list(placement.orientations)
        self._tables = make_tables(placement)
        self._state = make_state(self._tables, placement)
        self._undo: list[list[tuple[int, float, float, str]]] = []

    def move(self, block: str | int, x: float, y: float) -> float:
        """Move the centre of a block to (x, y) in microns; returns the new proxy."""
        number = self._movable(block)
        return self._change([(number, x, y, self._orientations[number])])

    def shift(self, block: str | int, dx: float, dy: float) -> float:
        """Move a block by (dx, dy) microns; returns the new proxy."""
        number = self._movable(block)
        x, y = self._state.x[number] + dx, self._state.y[number] + dy
        return self._change([(number, float(x), float(y), self._orientations[number])])

    def swap(self, first: str | int, second: str | int) -> float:
        """Exchange the centres of two blocks; returns the new proxy."""
        a, b = self._movable(first), self._movable(second)
        (ax, ay), (bx, by) = self._place(a), self._place(b)
        turns = self._orientations
        return self._change([(a, bx, by, turns[a]), (b, ax, ay, turns[b])])

    def flip(self, block: str | int, orientation: str) -> float:
        """Give a macro another orientation, N, FN, S or FS; returns the new proxy."""
        number = self._movable(block)
        is_turned = self._orientations[number] in TURNED
        allowed = TURNED if is_turned else UPRIGHT
        if orientation not in allowed:
            raise FloorplanError(
                f"{self._name(number)!r} cannot get the orientation {orientation!r}; "
                f"wanted one of {', '.join(allowed)}: macros are not turned by 90 degrees"
            )
        return self._change([(number, *self._place(number), orientation)])

    def undo(self) -> float:
        """Take back the last move that was not taken back; returns the proxy."""
        if not self._undo:
            raise FloorplanError("there is no move to undo")
        return [self._apply(*change) for change in reversed(self._undo.pop())][-1]

    @property
    def proxy(self) -> float:
        """The weighted sum of the three costs."""
        return proxy(self._tables, self._state, self._weights)

    @property
    def wirelength(self) -> float:
        return wirelength(self._tables, self._state)

    @property
    def density(self) -> float:
        return density(self._state)

    @property
    def congestion(self) -> float:
        return congestion(self._tables, self._state)

    @property
    def placement(self) -> ChipPlacement:
        """The placement after all moves."""
        x, y = self._state.x.copy(), self._state.y.copy()
        return self._placement.moved(x, y, tuple(self._orientations))

    def cost(self) -> PlacementCost:
        """All figures of the placement, computed in full."""
        tables, state = self._tables, self._state
        recompute(tables, state)
        write_use(tables, state)
        rows, columns = tables.rows, tables.columns
        cells = rows * columns
        placement = self.placement
        outside, overlaps = overlaps_of(placement)
        return PlacementCost(
            wirelength=self.wirelength,
            density=self.density,
            congestion=self.congestion,
            wires=float(state.wires[0]),
            routing=Routing(
                state.use[:cells].reshape(rows, columns).copy(),
                state.use[cells:].reshape(columns, rows).T.copy(),
            ),
            cell_density=state.area.reshape(rows, columns).copy(),
            overlaps=overlaps,
            outside=outside,
        )

    def _change(self, changes: list[tuple[int, float, float, str]]) -> float:
        before = [(b, *self._place(b), self._orientations[b]) for b, *_ in changes]
        self._undo.append(before)
        return [self._apply(*change) for change in changes][-1]

    def _apply(self, block: int, x: float, y: float, orientation: str) -> float:
        if orientation != self._orientations[block]:
            self._orientations[block] = orientation
            self._state.turn[block] = TURNS[orientation]
        place = (float(x), float(y))
        return move_block(self._tables, self._state, self._weights, block, place)

    def _place(self, block: int) -> tuple[float, float]:
        return float(self._state.x[block]), float(self._state.y[block])

    def _name(self, block: int) -> str:
        netlist = self._placement.netlist
        return netlist.nodes[netlist.blocks[block]].name

    def _movable(self, block: str | int) -> int:
        """The position of a block that may move."""
        netlist = self._placement.netlist
        number = netlist.block(block) if isinstance(block, str) else int(block)
        if not 0 <= number < len(netlist.blocks):
            raise FloorplanError(
                f"there is no block {block}; wanted 0 to {len(netlist.blocks) - 1}"
            )
        is_port = netlist.kinds[netlist.blocks[number]] is NodeKind.PORT
        if is_port or self._placement.is_fixed[number]:
            raise FloorplanError(f"{self._name(number)!r} is fixed and cannot be moved")
        return number

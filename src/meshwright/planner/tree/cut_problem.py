"""Partitioning as a problem for tree search: which input to cut, on what dim, by what axis.

The inputs are those of the folded graph, so that all layers are decided at once. A state
is what propagation makes of the cuts so far; cuts that lead to the same decisions lead to
one state, and inputs that are cut on the way need no decision any more (the worklist of
automap; Alabed et al., arXiv 2210.06352).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from meshwright.partitioner.propagate import State
from meshwright.partitioner.tactics import Workspace
from meshwright.planner.columns.evaluation import new_buffers, price
from meshwright.planner.columns.graph_columns import (
    CellRows,
    Cells,
    columns_of,
    ints,
    start_cells,
)
from meshwright.planner.columns.legality import write_legal_cuts
from meshwright.planner.columns.price_tables import price_tables_of
from meshwright.planner.columns.propagation import cut, new_worklist
from meshwright.planner.prices.integer_program import IntegerProgram
from meshwright.planner.prices.live_counts import LiveCounts


class InputCut(NamedTuple):
    """An action: all inputs of a group are cut on a dim along an axis of the user's."""

    group: int
    dim: int
    axis: str


@dataclass(frozen=True, slots=True, eq=False)
class CutState:
    """A state: the cells that propagation filled, and their key."""

    cells: Cells
    key: bytes


class StateCost(NamedTuple):
    """Of a state, by the model: seconds of a step, and bytes at its fullest moment."""

    seconds: float
    bytes: float


class CutProblem:
    """A `Problem` over the columns of one model.

    limit: bytes of a device. What does not fit costs more than all that does, the more
    the less it fits.
    """

    def __init__(
        self, work: Workspace, model: IntegerProgram, lives: LiveCounts, limit: float
    ) -> None:
        self.work = work
        self.reduced_graph = model.reduced_graph
        self.columns = columns_of(work.state, model.reduced_graph)
        self.prices = price_tables_of(model, lives, tuple(work.state.size))
        self.limit = limit
        units = tuple(work.state.size)
        self.units: Mapping[str, tuple[int, ...]] = {
            axis: tuple(map(units.index, own)) for axis, own in work.sub_axes.items()
        }
        self.cuts = tuple(self._cuts())
        self._moves = ints(
            x
            for c in self.cuts
            for x in (c.group, self.units[c.axis][0], c.dim, work.mesh.size(c.axis))
        ).reshape(-1, 4)
        self._legal = ints(range(len(self.cuts)))
        self._room = new_worklist(self.columns)
        self._desk = new_buffers(self.columns, self.prices)
        self._costs: dict[bytes, StateCost] = {}
        self._start = self.read(work.state)
        self._worst = self.measure(self._start).seconds

    def _cuts(self) -> Iterator[InputCut]:
        groups = self.reduced_graph.classes
        nodes = self.work.graph.input_nodes
        inputs = dict.fromkeys(
            self.reduced_graph.class_of[node.index] for node in nodes
        )
        for axis in self.units:
            for group in inputs:
                for dim in range(len(groups[group].node.sizes)):
                    yield InputCut(group, dim, axis)

    # -- as a problem -----------------------------------------------------------------

    def start(self) -> CutState:
        """Nothing is cut but what the user's own code cuts."""
        return self._start

    def actions(self, state: CutState) -> Sequence[InputCut]:
        """All cuts of inputs that are open along the axis, and divide."""
        count = write_legal_cuts(self.columns, state.cells, self._moves, self._legal)
        cuts = self.cuts
        return [cuts[i] for i in self._legal[:count].tolist()]

    def apply(self, state: CutState, action: InputCut) -> CutState:
        """The state after one more cut and all that follows from it."""
        cells = state.cells.copy()
        for unit in self.units[action.axis]:
            cut(self.columns, cells, self._room, action.group, unit, action.dim)
        return self._point(cells)

    def cost(self, state: CutState) -> float:
        """Seconds, if it fits."""
        seconds, num_bytes = self.measure(state)
        over = num_bytes / self.limit
        return seconds if over <= 1 else self._worst + seconds * over

    def key(self, state: CutState) -> Hashable:
        """That of all decisions."""
        return state.key

    # -- besides ----------------------------------------------------------------------

    def measure(self, state: CutState) -> StateCost:
        """What a state costs; each is priced once."""
        known = self._costs.get(state.key)
        if known is None:
            found = price(
                self.columns, self.prices, state.cells, self._room.memory, self._desk
            )
            known = self._costs[state.key] = StateCost(*found)
        return known

    def clear_costs(self) -> None:
        """All costs, so that each state is priced anew."""
        self._costs.clear()

    def choices(self, state: CutState) -> tuple[int, ...]:
        """Of all variables of the model."""
        price(self.columns, self.prices, state.cells, self._room.memory, self._desk)
        return tuple(self._desk.choices.tolist())

    def read(self, state: State) -> CutState:
        """What decisions about the graph say of the groups, by their first members."""
        return self._point(
            np.array(start_cells(self.columns, state, self.reduced_graph))
        )

    def follow(self, cuts: Iterable[InputCut]) -> CutState:
        """The state after cuts in this order; those that cannot be made are left out."""
        point = self._start
        for each in cuts:
            point = self.apply(point, each)
        return point

    def without(self, state: CutState, axis: str) -> CutState:
        """A state as if nothing were cut along an axis but what the user's code cuts."""
        rows, cells = CellRows.of(self.columns), self._start.cells.copy()
        for other, units in self.units.items():
            if other != axis:
                cells[: rows.total, units] = state.cells[: rows.total, units]
        cells[rows.total, 0] = (cells[rows.sums : rows.requests] >= 0).sum()
        return self._point(cells)

    def _point(self, cells: Cells) -> CutState:
        decided = cells[: CellRows.of(self.columns).requests]
        return CutState(cells, blake2b(decided.data, digest_size=16).digest())

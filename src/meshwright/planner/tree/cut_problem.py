"""Partitioning as a search problem: which input to shard, on what dim, along what axis.

The inputs are those of the symmetry-reduced graph, so that all equal layers are decided
at once. A state is the result of propagating the shardings ("cuts") so far. Different
cuts that lead to the same decisions lead to one state, and inputs that propagation has
sharded need no decision any more (the worklist of automap; Alabed et al., arXiv
2210.06352).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from meshwright.partitioner.propagate import State
from meshwright.planner.columns.evaluation import evaluate, new_buffers
from meshwright.planner.columns.graph_columns import columns_of, ints
from meshwright.planner.columns.price_tables import price_tables_of
from meshwright.planner.columns.propagation import cut, new_worklist
from meshwright.planner.columns.state_cells import (
    CellRows,
    Cells,
    start_cells,
    write_legal_cuts,
)
from meshwright.planner.solve.space import PricedProgram
from meshwright.search.work import REAL_TIME, Meter, Work


class InputCut(NamedTuple):
    """An action of the search: shard all inputs of a group on a dim along a mesh axis.

    A group is a class of equal inputs.
    """

    group: int
    dim: int
    axis: str


_CUT = Work("cut", 6.5e-8)
"""Counted work to copy a state and propagate a sharding in it, per cell."""

_EVALUATE = Work("evaluate", 1e-7)
"""Counted work to predict the cost of a state, per cell."""


@dataclass(frozen=True, slots=True, eq=False)
class CutState:
    """A state of the search, after propagation.

    cells: the state as an array of integers (`planner/columns/state_cells.py`).
    key: a digest of the state's decisions.
    """

    cells: Cells
    key: bytes


class StateCost(NamedTuple):
    """Predicted cost of a state: seconds of a step, and its peak memory in bytes."""

    seconds: float
    bytes: float


def step_seconds(seconds: float, num_bytes: float) -> float:
    """The predicted seconds of a step, as the objective of a search."""
    return seconds


class CutProblem:
    """A `search.Problem` whose actions shard inputs of a program on one mesh.

    limit: bytes of a device. A state that does not fit costs more than every state that
        does: its value times its bytes relative to the limit, plus the value of the
        start.
    axes: mesh axes along which inputs may be sharded, all by default.
    value_of: the objective to minimize, a function of a step's seconds and peak bytes.
    meter: counts the states that are made and whose cost is predicted.
    """

    def __init__(
        self,
        priced: PricedProgram,
        limit: float,
        axes: Sequence[str] | None = None,
        value_of: Callable[[float, float], float] = step_seconds,
        meter: Meter = REAL_TIME,
    ) -> None:
        work, model = priced.work, priced.model
        lives, positions = priced.pricer.live_counts, tuple(work.state.size)
        self.work = work
        self.reduced_graph = model.reduced_graph
        self.columns = columns_of(work.state, model.reduced_graph)
        self.prices = price_tables_of(model, lives, positions)
        self.limit = limit
        self.value_of = value_of
        self.meter = meter
        self.sub_axes: Mapping[str, tuple[int, ...]] = {
            axis: tuple(map(positions.index, work.sub_axes[axis]))
            for axis in (work.mesh.axes if axes is None else axes)
        }
        self.cuts = tuple(self._all_cuts())
        rows = [
            (c.group, self.sub_axes[c.axis][0], c.dim, work.mesh.size(c.axis))
            for c in self.cuts
        ]
        self._cut_rows = np.array(rows, np.int64).reshape(-1, 4)
        self._legal = ints(range(len(self.cuts)))
        self._worklist = new_worklist(self.columns)
        self._buffers = new_buffers(self.columns, self.prices)
        self.known_costs: dict[bytes, StateCost] = {}
        self._start = self.state_from(work.state)
        self._start_value = value_of(*self.measure(self._start))

    def _all_cuts(self) -> Iterator[InputCut]:
        reduced, nodes = self.reduced_graph, self.work.graph.input_nodes
        inputs = dict.fromkeys(reduced.class_of[node.index] for node in nodes)
        for axis in self.sub_axes:
            for group in inputs:
                for dim in range(len(reduced.classes[group].node.sizes)):
                    yield InputCut(group, dim, axis)

    # -- the protocol of `search.Problem` ---------------------------------------------

    def start(self) -> CutState:
        """The state before any action, with all decisions of earlier tactics."""
        return self._start

    def actions(self, state: CutState) -> Sequence[InputCut]:
        """The legal actions: an axis may shard an input if it divides it.

        An input that the axis shards already is left out.
        """
        count = write_legal_cuts(self.columns, state.cells, self._cut_rows, self._legal)
        cuts = self.cuts
        return [cuts[i] for i in self._legal[:count].tolist()]

    def apply(self, state: CutState, action: InputCut) -> CutState:
        """The state after one more sharding of inputs and its propagation."""
        cells = state.cells.copy()
        for sub_axis in self.sub_axes[action.axis]:
            cut(self.columns, cells, self._worklist, action.group, sub_axis, action.dim)
        self.meter.count(_CUT, cells.size)
        return self._state(cells)

    def cost(self, state: CutState) -> float:
        """The objective of a state, with a penalty if it does not fit into memory."""
        cost = self.measure(state)
        excess = cost.bytes / self.limit
        value = self.value_of(*cost)
        return value if excess <= 1 else self._start_value + value * excess

    def key(self, state: CutState) -> Hashable:
        """A digest of a state's decisions, equal for equal states."""
        return state.key

    # -- more about states ------------------------------------------------------------

    def within(self, limit: float) -> CutProblem:
        """The same problem with another memory limit; known costs are shared."""
        other = copy(self)
        other.limit = limit
        return other

    def measure(self, state: CutState) -> StateCost:
        """Predicted seconds and bytes of a state; each state is evaluated once."""
        if state.key not in self.known_costs:
            self.known_costs[state.key] = StateCost(*self._evaluate(state))
            self.meter.count(_EVALUATE, state.cells.size)
        return self.known_costs[state.key]

    def _evaluate(self, state: CutState) -> tuple[float, float]:
        cache = self._worklist.cache
        return evaluate(self.columns, self.prices, state.cells, cache, self._buffers)

    def choices(self, state: CutState) -> tuple[int, ...]:
        """The strategy of each class of ops, then the sharding of each shared value.

        Both are given by number, as choices of the integer program.
        """
        self._evaluate(state)
        return tuple(self._buffers.choices.tolist())

    def state_from(self, state: State) -> CutState:
        """The search state with the decisions of a propagation state.

        The decisions about the first member of each class count for the whole class.
        """
        return self._state(
            np.array(start_cells(self.columns, state, self.reduced_graph))
        )

    def follow(self, cuts: Iterable[InputCut]) -> CutState:
        """The state after these actions in order.

        Actions that are not legal change nothing.
        """
        state = self._start
        for each in cuts:
            state = self.apply(state, each)
        return state

    def without(self, state: CutState, axis: str) -> CutState:
        """The state with its decisions along one axis reset to those of the start."""
        rows, cells = CellRows.of(self.columns), self._start.cells.copy()
        for other, sub_axes in self.sub_axes.items():
            if other != axis:
                cells[: rows.total, sub_axes] = state.cells[: rows.total, sub_axes]
        cells[rows.total, 0] = (cells[rows.sums : rows.requests] >= 0).sum()
        return self._state(cells)

    def _state(self, cells: Cells) -> CutState:
        decided = cells[: CellRows.of(self.columns).requests]
        return CutState(cells, blake2b(decided.data, digest_size=16).digest())

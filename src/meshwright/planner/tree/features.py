"""What can be said of cuts before any of them is searched, in numbers without names.

The cuts along an axis are looked at in two situations: nothing is cut along it yet, and
it cuts data in the best way there is. In each, one cut of each kind is made and priced, so
that all features of an axis together take as long as a few trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from meshwright.planner.tree.cut_problem import CutProblem, CutState, InputCut
from meshwright.planner.tree.kinds import kinds_of
from meshwright.program.ir import num_bytes
from meshwright.search.arrays import Floats, Ints


class Phase(IntEnum):
    """What an axis cuts in a state: no input, data, or only state.

    State is what a step hands on as its next state; all other inputs are data.
    """

    NOTHING = 0
    DATA = 1
    STATE = 2


KIND_FEATURES = (
    "seconds",  # of a step, after such a cut and before: logarithm of the ratio
    "bytes",  # at its fullest moment, likewise
    "bytes over the limit",  # the same where a state did not fit before, else 0
    "comes to fit",  # and did not before
    "is cheapest",  # of all kinds along the axis; what does not fit is dearest
    "is dearer than the middle",
    "input bytes reached",  # share of them that becomes cut along the axis
    "inputs reached",
    "groups reached",  # share of the program of which something changes
    "data reached",  # whether any is
    "all data reached",
)
"""Of all cuts of a kind."""

OWN_FEATURES = (
    "own bytes",  # of the group of inputs that is cut: logarithm of its share
    "own is data",
    "cuts of the kind",  # logarithm of their number
    "first dim",
    "last dim",
    "is cut already",  # along another axis
    "dim is cut already",
)
"""Of each cut."""

FEATURES = KIND_FEATURES + OWN_FEATURES

REACHES_DATA = KIND_FEATURES.index("data reached")
CHEAPEST = KIND_FEATURES.index("is cheapest")

_FARTHEST = 3.0
"""Largest logarithm of a ratio; one of 20 says no more than one of 1,000."""


class CutFeatures:
    """The cuts of a problem that are open at its start, in order, and their features.

    number: of a cut. kinds: of each, [C]. rows: by axis, the numbers of its cuts
    """

    def __init__(self, problem: CutProblem) -> None:
        self.problem = problem
        kinds = kinds_of(problem)
        self.cuts = tuple(kinds)
        self.number = {cut: i for i, cut in enumerate(self.cuts)}
        self.kinds: Ints = np.array(list(kinds.values()), np.int64)
        self.rows: dict[str, Ints] = {
            axis: np.array(
                [i for i, cut in enumerate(self.cuts) if cut.axis == axis], np.int64
            )
            for axis in problem.units
        }
        graph, class_of = problem.work.graph, problem.reduced_graph.class_of
        state = set(graph.ties.values())
        sizes: dict[int, float] = {}
        data: set[int] = set()
        for position, node in enumerate(graph.input_nodes):
            group = class_of[node.index]
            size = num_bytes(graph.values[node.outs[0][0]])
            sizes[group] = sizes.get(group, 0) + size
            if position not in state:
                data.add(group)
        total = max(sum(sizes.values()), 1.0)
        self._inputs: Ints = np.array(list(sizes), np.int64)
        self._shares: Floats = np.array(list(sizes.values())) / total
        self._is_data = np.array([group in data for group in sizes])
        self._place = {group: i for i, group in enumerate(sizes)}

    def phase(self, state: CutState, axis: str) -> Phase:
        """What an axis cuts in a state."""
        is_cut = self._is_cut(state, axis)
        if not is_cut.any():
            return Phase.NOTHING
        return Phase.DATA if is_cut[self._is_data].any() else Phase.STATE

    def others(self, state: CutState, axis: str) -> bytes:
        """What all other axes cut of the inputs, as a key."""
        units = self.problem.units
        others = [unit for other in units if other != axis for unit in units[other]]
        return state.cells[self._inputs][:, others].tobytes()

    def features(self, state: CutState, axis: str) -> Floats:
        """Of the cuts along an axis, by phase, on top of what other axes cut, [3, C, F].

        All are 0 where a state has no price.
        """
        bare = self.problem.without(state, axis)
        first, best = self._look(bare, axis)
        then, _ = self._look(best, axis)
        found = {Phase.NOTHING: first, Phase.DATA: then, Phase.STATE: first}
        return np.stack([found[phase] for phase in Phase])

    def _is_cut(self, state: CutState, axis: str) -> NDArray[np.bool_]:
        return state.cells[self._inputs, self.problem.units[axis][0]] >= 0

    def _look(self, state: CutState, axis: str) -> tuple[Floats, CutState]:
        """Features under a state, and the best state after a cut that reaches data."""
        problem, rows = self.problem, self.rows[axis]
        found = np.zeros((len(rows), len(FEATURES)))
        best, least = state, math.inf
        if not math.isfinite(problem.measure(state).seconds):
            return found, best
        count = len(KIND_FEATURES)
        found[:, count:] = [self._own(state, self.cuts[row]) for row in rows]
        of_kind = self.kinds[rows]
        costs = np.full(len(rows), math.nan)
        for kind, point in self._tries(state, axis).items():
            told, cost = self._reach(state, point, axis), problem.cost(point)
            found[of_kind == kind, :count] = told
            costs[of_kind == kind] = cost
            if told[REACHES_DATA] and cost < least:
                best, least = point, cost
        if not np.isnan(costs).all():
            found[:, CHEAPEST] = costs == np.nanmin(costs)
            found[:, CHEAPEST + 1] = costs > np.nanmedian(np.unique(costs))
        return found, best

    def _tries(self, state: CutState, axis: str) -> dict[int, CutState]:
        """By kind, the state after the first cut of it that is open."""
        tries: dict[int, CutState] = {}
        for cut in self.problem.actions(state):
            number = self.number.get(cut)
            if cut.axis == axis and number is not None:
                kind = int(self.kinds[number])
                if kind not in tries:
                    tries[kind] = self.problem.apply(state, cut)
        return tries

    def _reach(self, state: CutState, point: CutState, axis: str) -> Sequence[float]:
        """`KIND_FEATURES` of the step from one state to another, ranks left out."""
        problem = self.problem
        before, after = problem.measure(state), problem.measure(point)
        new = self._is_cut(point, axis) & ~self._is_cut(state, axis)
        groups = slice(len(problem.columns.groups) - 1)
        changed = (point.cells[groups] != state.cells[groups]).any(1)
        data, change = new[self._is_data], _change(before.bytes, after.bytes)
        return (
            _change(before.seconds, after.seconds),
            change,
            change * (before.bytes > problem.limit),
            float(after.bytes <= problem.limit < before.bytes),
            0.0,
            0.0,
            float(self._shares[new].sum()),
            float(new.mean()),
            float(changed.mean()),
            float(data.any()),
            float(data.size > 0 and data.all()),
        )

    def _own(self, state: CutState, cut: InputCut) -> Sequence[float]:
        """`OWN_FEATURES` of a cut under a state."""
        place, cells = self._place[cut.group], state.cells[cut.group]
        num_dims = len(self.problem.reduced_graph.classes[cut.group].node.sizes)
        kind = self.kinds[self.number[cut]]
        return (
            math.log10(max(float(self._shares[place]), 1e-9)) / _FARTHEST,
            float(self._is_data[place]),
            math.log(int((self.kinds == kind).sum())),
            float(cut.dim == 0),
            float(cut.dim == num_dims - 1),
            float((cells >= 0).any()),
            float((cells == cut.dim).any()),
        )


def _change(before: float, after: float) -> float:
    """The logarithm of a ratio, -3 to 3."""
    if not math.isfinite(after):
        return _FARTHEST
    if min(before, after) <= 0:
        return 0.0
    return min(max(math.log(after / before), -_FARTHEST), _FARTHEST)

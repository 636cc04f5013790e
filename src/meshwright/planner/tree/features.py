"""Features of actions for the learned prior, which do not depend on names or shapes.

An action ("cut") shards an input along an axis. The cuts along an axis are described in
two states: without any cut along the axis, and after the best cut along it that reaches
data. In each of the two, one cut of each kind is made and priced, so that all features
of an axis take as long as a few trajectories of the search.
"""

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from meshwright.planner.tree.cut_problem import CutProblem, CutState, InputCut
from meshwright.program.ir import num_bytes
from meshwright.search.arrays import Floats, Ints


class Phase(IntEnum):
    """The inputs that an axis shards so far: none, some data, or only training state.

    Training state consists of the inputs that a step returns as its next state; all
    other inputs are data.
    """

    NOTHING = 0
    DATA = 1
    STATE = 2


KIND_FEATURES = (
    "seconds",  # of a step: logarithm of the ratio after / before the cut
    "bytes",  # of peak memory: likewise
    "bytes over the limit",  # the same if the state did not fit before, else 0
    "begins to fit",  # fits after the cut and not before
    "is cheapest",  # the lowest cost of all kinds along the axis
    "costs more than the median",  # a cost above the median of the kinds
    "input bytes reached",  # share of the bytes of inputs that the axis newly cuts
    "inputs reached",  # the same share of groups of inputs
    "groups reached",  # share of all groups of which a decision changes
    "data reached",  # whether the axis newly cuts some data
    "all data reached",  # whether it newly cuts all of it
)
"""Names of the features that all cuts of one kind have in common.

Cuts of one kind lead to the same state.
"""

OWN_FEATURES = (
    "own bytes",  # of the cut group of inputs: logarithm of its share of all inputs
    "own is data",  # rather than training state
    "cuts of the kind",  # logarithm of their number
    "first dim",
    "last dim",
    "is cut already",  # the group, along another axis
    "dim is cut already",  # the same dim, along another axis
)
"""Names of the features of a single cut (sharding of an input)."""

FEATURES = KIND_FEATURES + OWN_FEATURES

REACHES_DATA = KIND_FEATURES.index("data reached")
CHEAPEST = KIND_FEATURES.index("is cheapest")

_MOST_LOG = 3.0
"""Bound on logarithms of ratios, so that a ratio above 20 counts as 20."""


def kinds_of(problem: CutProblem) -> Mapping[InputCut, int]:
    """The number of the kind of each cut that is legal at the start.

    A cut shards an input. Two cuts are of one kind if they lead from the start to the
    same state. (TOAST, arXiv 2508.15010, groups dims that must be sharded alike.)
    """
    start = problem.start()
    numbers: dict[bytes, int] = {}
    return {
        cut: numbers.setdefault(problem.apply(start, cut).key, len(numbers))
        for cut in problem.actions(start)
    }


class CutFeatures:
    """The C cuts (shardings of inputs) that are legal at the start, and their features.

    number: position of each cut.
    kinds: number of each cut's kind, [C].
    rows: for each axis, positions of the cuts along it.
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
            for axis in problem.sub_axes
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
        self._positions = {group: i for i, group in enumerate(sizes)}

    def phase(self, state: CutState, axis: str) -> Phase:
        """The phase of an axis in a state, which says what inputs the axis shards."""
        is_cut = self._is_cut(state, axis)
        if not is_cut.any():
            return Phase.NOTHING
        return Phase.DATA if is_cut[self._is_data].any() else Phase.STATE

    def others(self, state: CutState, axis: str) -> bytes:
        """A key of how all axes other than `axis` shard the inputs."""
        others = [
            sub_axis
            for other, sub_axes in self.problem.sub_axes.items()
            if other != axis
            for sub_axis in sub_axes
        ]
        return state.cells[self._inputs][:, others].tobytes()

    def along(self, state: CutState, axis: str) -> Floats:
        """Features of the cuts (shardings of inputs) along an axis, [3, C, F].

        The first dim counts the axis's phases (`Phase`), the second the cuts. Shardings
        along other axes stay as in `state`. All features are 0 if the state without
        cuts along the axis has no finite cost.
        """
        uncut = self.problem.without(state, axis)
        of_uncut, best = self._in_state(uncut, axis)
        of_best, _ = self._in_state(best, axis)
        return np.stack([of_uncut, of_best, of_uncut])  # in the order of `Phase`

    def _is_cut(self, state: CutState, axis: str) -> NDArray[np.bool_]:
        return state.cells[self._inputs, self.problem.sub_axes[axis][0]] >= 0

    def _in_state(self, state: CutState, axis: str) -> tuple[Floats, CutState]:
        """Features of cuts in a state, [C, F], and the cheapest state after a cut.

        C counts the cuts along the axis. Only cuts that shard data count for the
        cheapest state.
        """
        problem, rows = self.problem, self.rows[axis]
        found = np.zeros((len(rows), len(FEATURES)))
        best, least = state, math.inf
        if not math.isfinite(problem.measure(state).seconds):
            return found, best
        count = len(KIND_FEATURES)
        found[:, count:] = [self._own_features(state, self.cuts[row]) for row in rows]
        of_kind = self.kinds[rows]
        costs = np.full(len(rows), math.nan)
        for kind, after in self._one_cut_per_kind(state, axis).items():
            shared, cost = self._kind_features(state, after, axis), problem.cost(after)
            found[of_kind == kind, :count] = shared
            costs[of_kind == kind] = cost
            if shared[REACHES_DATA] and cost < least:
                best, least = after, cost
        if not np.isnan(costs).all():
            found[:, CHEAPEST] = costs == np.nanmin(costs)
            found[:, CHEAPEST + 1] = costs > np.nanmedian(np.unique(costs))
        return found, best

    def _one_cut_per_kind(self, state: CutState, axis: str) -> dict[int, CutState]:
        """The state after the first legal cut of each kind along an axis, by kind.

        A cut shards an input; cuts of one kind lead to the same state.
        """
        states: dict[int, CutState] = {}
        for cut in self.problem.actions(state):
            number = self.number.get(cut)
            if cut.axis == axis and number is not None:
                kind = int(self.kinds[number])
                if kind not in states:
                    states[kind] = self.problem.apply(state, cut)
        return states

    def _kind_features(
        self, before: CutState, after: CutState, axis: str
    ) -> Sequence[float]:
        """`KIND_FEATURES` of the cut that leads from state `before` to state `after`.

        The features "is cheapest" and "costs more than the median" are 0; the caller
        sets them.
        """
        problem = self.problem
        old, new = problem.measure(before), problem.measure(after)
        reached = self._is_cut(after, axis) & ~self._is_cut(before, axis)
        groups = slice(len(problem.columns.blocked))
        changed = (after.cells[groups] != before.cells[groups]).any(1)
        data, change = reached[self._is_data], _log_ratio(old.bytes, new.bytes)
        return (
            _log_ratio(old.seconds, new.seconds),
            change,
            change * (old.bytes > problem.limit),
            float(new.bytes <= problem.limit < old.bytes),
            0.0,
            0.0,
            float(self._shares[reached].sum()),
            float(reached.mean()),
            float(changed.mean()),
            float(data.any()),
            float(data.size > 0 and data.all()),
        )

    def _own_features(self, state: CutState, cut: InputCut) -> Sequence[float]:
        """`OWN_FEATURES` of a cut (sharding of an input) in a state."""
        place, cells = self._positions[cut.group], state.cells[cut.group]
        num_dims = len(self.problem.reduced_graph.classes[cut.group].node.sizes)
        kind = self.kinds[self.number[cut]]
        return (
            math.log10(max(float(self._shares[place]), 1e-9)) / _MOST_LOG,
            float(self._is_data[place]),
            math.log(int((self.kinds == kind).sum())),
            float(cut.dim == 0),
            float(cut.dim == num_dims - 1),
            float((cells >= 0).any()),
            float((cells == cut.dim).any()),
        )


def _log_ratio(before: float, after: float) -> float:
    """The natural logarithm of after / before, clipped to the range -3 to 3."""
    if not math.isfinite(after):
        return _MOST_LOG
    if min(before, after) <= 0:
        return 0.0
    return min(max(math.log(after / before), -_MOST_LOG), _MOST_LOG)

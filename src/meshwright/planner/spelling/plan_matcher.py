"""Measures how closely a list of tactics, propagated in order, reproduces a plan."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from meshwright.partitioner.propagate import Node, State
from meshwright.partitioner.structure.sites import Place, sites_of
from meshwright.partitioner.structure.workspace import Sum, without_indices
from meshwright.partitioner.tactics import REPLICATED, Workspace
from meshwright.partitioner.tactics.primitives import Choice
from meshwright.planner.spelling.site_graph import build_site_graph, start_on

_OVERCUT = 0.5
"""Penalty for sharding a dim that the plan replicates, relative to a wrong dim."""
_ORDER = 0.3
"""Penalty for axes in another order than the plan's on a dim, if 1 is a wrong dim."""
_MOST_SITES = 60
"""Largest number of source sites that are tried; those of largest weight are taken."""

Key = str | tuple[Place, int | None]
"""The name of the leaves or ops that a line of a tactic shards.

It is the path of an input leaf without indices; or a source site and the number of a
kind of its ops, `None` for all kinds.
"""


@dataclass(frozen=True, slots=True)
class CutEntry:
    """One line of a tactic: input leaves or ops, and which of their dims to shard.

    where: a dim, a reduced dim, or `REPLICATED`.
    nodes: indices of the leaves or ops in the site graph.
    """

    key: Key
    where: int | Sum | Choice
    nodes: tuple[int, ...]

    @property
    def is_leaf(self) -> bool:
        """Whether the entry names an input leaf rather than an op."""
        return isinstance(self.key, str)


@dataclass(frozen=True, slots=True)
class CutStep:
    """One tactic: entries that are sharded together along an axis, then propagated."""

    axis: str
    entries: tuple[CutEntry, ...]


class PlanMatcher:
    """The found plan, and a small graph on which lists of steps are compared with it.

    A step is one tactic. The site graph has one node for all ops of a source site that
    are sharded alike.
    leaves: nodes of the site graph for input leaves, by path.
    is_over: whether the search has to end.
    count: function that is called with the number of nodes each time that a list is
        scored.
    """

    def __init__(
        self,
        found: Workspace,
        start: Workspace,
        is_over: Callable[[], bool],
        count: Callable[[int], None],
    ) -> None:
        self.found = found
        self.sites = sites = build_site_graph(found)
        self.leaves = dict(zip(found.paths, sites.graph.input_nodes, strict=True))
        self.is_over = is_over
        self._count = count
        self.work = start_on(sites, start)
        self.state: State = self.work.state
        self._applied: list[CutStep] = []
        self._marks = [self.state.mark()]  # at the start and after each step
        self._target = [
            tuple(
                (axis, factor, found.state.axes_of[own[0]][factor])
                for axis, factor in found.state.factor_of[own[0]].items()
            )
            for own in sites.members
        ]
        self.total = sum(
            w * len(t) for w, t in zip(sites.weights, self._target, strict=True)
        )

    # -- scoring ----------------------------------------------------------------------

    def score(self) -> tuple[float, float]:
        """Weights of the state's decisions that agree or disagree with the plan."""
        right = wrong = 0.0
        state = self.state
        for index, (weight, target) in enumerate(
            zip(self.sites.weights, self._target, strict=True)
        ):
            decided = state.factor_of[index]
            if not decided:
                continue
            left = len(decided)
            for axis, factor, axes in target:
                chosen = decided.get(axis)
                if chosen is None:
                    continue
                left -= 1
                if chosen != factor:
                    wrong += weight
                    continue
                order = state.axes_of[index][factor]
                right += weight
                if order != axes[: len(order)]:
                    wrong += _ORDER * weight
            wrong += _OVERCUT * weight * left
        self._count(len(self._target))
        return right, wrong

    def apply(self, step: CutStep, name: str = "") -> None:
        """Apply one more step (tactic) to the state.

        name: name of the tactic that `causes` records for the decisions that follow.
        """
        nodes = self.sites.graph.nodes
        seeds: list[tuple[str, Node, int | Sum]] = []
        for entry in step.entries:
            own = [("", nodes[i]) for i in entry.nodes]
            if isinstance(entry.where, Choice):
                self.work.block(own, [step.axis])
            else:
                seeds += [("", node, entry.where) for _, node in own]
        self.work.cut(seeds, step.axis, name)
        self.work.refusals.clear()

    def score_list(self, steps: Sequence[CutStep]) -> tuple[float, float]:
        """The score of a list of steps (tactics), each applied and propagated in order.

        The score is the weight of decisions that agree with the plan, and of those that
        do not. Steps with which the previously scored list began, too, stay applied.
        """
        same = 0
        for step, other in zip(self._applied, steps, strict=False):
            if step is not other:
                break
            same += 1
        del self._applied[same:], self._marks[same + 1 :]
        self.state.rollback(self._marks[same])
        for number, step in enumerate(steps[same:], same):
            self.apply(step, str(number))
            self._applied.append(step)
            self._marks.append(self.state.mark())
        return self.score()

    def oversharded_leaves(self, axis: str) -> tuple[int, list[CutEntry]]:
        """Entries that replicate the leaves which an axis shards against the plan.

        The result also has, first, the number of the first step that shards any of
        these leaves.
        """
        first, found = len(self.leaves), dict[str, set[int]]()
        sub_axis = self.found.sub_axes[axis][0]
        for path, node in self.leaves.items():
            wanted = {axis for axis, _, _ in self._target[node.index]}
            if sub_axis in self.state.factor_of[node.index] and sub_axis not in wanted:
                name = self.state.causes[node.index, sub_axis].tactic
                first = min(first, int(name or 0))
                found.setdefault(without_indices(path), set()).add(node.index)
        return first, [
            CutEntry(path, REPLICATED, tuple(sorted(own)))
            for path, own in found.items()
        ]

    # -- candidates for steps ------------------------------------------------------------

    def leaf_steps(self) -> list[CutStep]:
        """One step for each family of input leaves and each dim that the plan shards.

        A family has leaves whose paths differ only in indices, such as those of equal
        layers.
        """
        found: dict[tuple[str, str, int | Sum], set[int]] = {}
        for path, node in self.leaves.items():
            for axis, where in self.planned_cuts(node):
                key = axis, without_indices(path), where
                found.setdefault(key, set()).add(node.index)
        return [
            CutStep(axis, (CutEntry(path, where, tuple(sorted(nodes))),))
            for (axis, path, where), nodes in found.items()
        ]

    def op_steps(self) -> list[CutStep]:
        """One step for each source site.

        Several if the plan shards its ops differently.
        """
        known = sites_of(self.found.graph)
        found: dict[tuple[str, Place], dict[int | Sum, dict[int, set[int]]]] = {}
        for node, own in zip(self.sites.graph.nodes, self.sites.members, strict=True):
            if own[0] in known.place_of:
                place, number = known.place_of[own[0]]
                for axis, where in self.planned_cuts(node):
                    alike = found.setdefault((axis, place), {}).setdefault(where, {})
                    alike.setdefault(number, set()).add(node.index)
        steps: list[CutStep] = []
        for (axis, place), wheres in found.items():
            for where, alike in wheres.items():
                kinds: dict[int | None, set[int]] = {**alike}
                if len(wheres) == 1 and len(alike) == len(known.of[place]):
                    kinds = {None: set[int]().union(*alike.values())}
                for number, nodes in kinds.items():
                    entry = CutEntry((place, number), where, tuple(sorted(nodes)))
                    steps.append(CutStep(axis, (entry,)))
        weights = self.sites.weights

        def weight(step: CutStep) -> float:
            return sum(weights[i] for i in step.entries[0].nodes)

        return sorted(steps, key=weight, reverse=True)[:_MOST_SITES]

    def planned_cuts(self, node: Node) -> Iterator[tuple[str, int | Sum]]:
        """The mesh axes that shard a node in the plan, and the dim that each shards."""
        factors = {axis: factor for axis, factor, _ in self._target[node.index]}
        for axis in self.found.mesh.axes:
            for sub_axis in self.found.sub_axes[axis][:1]:
                where = self._where(node, factors.get(sub_axis))
                if where is not None:
                    yield axis, where

    def _where(self, node: Node, factor: int | None) -> int | Sum | None:
        if factor is None or not node.outs:
            return None
        for dim, factors in enumerate(node.outs[0][1]):
            if factor in factors:
                return dim
        sums = self.work.sums(node)
        return Sum(sums.index(factor)) if factor in sums else None

"""How near a list of cuts, propagated in order, comes to given decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.partitioner.propagate import Node, State
from meshwright.partitioner.structure.sites import Place, sites_of
from meshwright.partitioner.structure.workspace import Sum
from meshwright.partitioner.tactics import REPLICATED, Workspace
from meshwright.partitioner.tactics.primitives import Choice
from meshwright.planner.spelling.reduced_graph import (
    Quotient,
    start_on,
    without_indices,
)

_OVERCUT = 0.5
"""How wrong it is to cut what the target keeps whole."""
_ORDER = 0.3
"""How wrong it is to cut in another order of axes than the target."""
_MOST_SITES = 60
"""Sites that are tried, the heaviest."""

Key = str | tuple[Place, int | None]
"""A leaf's path without indices, or a site and which of its unlike ops, if not all."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a tactic: what is cut where, or kept whole.

    nodes: those of the small graph.
    """

    key: Key
    where: int | Sum | Choice
    nodes: tuple[int, ...]

    @property
    def is_leaf(self) -> bool:
        """Whether it is an input rather than an op."""
        return isinstance(self.key, str)


@dataclass(frozen=True, slots=True)
class Step:
    """One tactic: entries that are cut together, and propagated."""

    axis: str
    entries: tuple[Entry, ...]


class Imitation:
    """One target, and the small graph on which lists of cuts are tried."""

    def __init__(
        self,
        found: Workspace,
        start: Workspace,
        quotient: Quotient,
        clock: Callable[[], float],
        until: float,
    ) -> None:
        self.found = found
        self.quotient = quotient
        self.clock = clock
        self.until = until
        self.work = start_on(quotient, start)
        self.state: State = self.work.state
        self._start = self.state.mark()
        self._ran: list[tuple[Step, int]] = []  # of a run each step, and where it began
        self._ran_to = self._start
        self._target = [
            tuple(
                (axis, factor, found.state.axes_of[own[0]][factor])
                for axis, factor in found.state.factor_of[own[0]].items()
            )
            for own in quotient.members
        ]
        self.total = sum(
            w * len(t) for w, t in zip(quotient.weights, self._target, strict=True)
        )

        known = sites_of(found.graph).of
        self._num_kinds = {place: len(alike) for place, alike in known.items()}

    # -- judging ----------------------------------------------------------------------

    def judge(self) -> tuple[float, float]:
        """What the state decides as the target does, and what otherwise."""
        right = wrong = 0.0
        state = self.state
        for index, (weight, target) in enumerate(
            zip(self.quotient.weights, self._target, strict=True)
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
        return right, wrong

    def apply(self, step: Step, name: str = "") -> None:
        """Take one step on top of the state."""
        nodes = self.quotient.graph.nodes
        seeds: list[tuple[str, Node, int | Sum]] = []
        for entry in step.entries:
            own = [("", nodes[i]) for i in entry.nodes]
            if isinstance(entry.where, Choice):
                self.work.block(own, [step.axis])
            else:
                seeds += [("", node, entry.where) for _, node in own]
        self.work.cut(seeds, step.axis, name)
        self.work.refusals.clear()

    def run(self, steps: Sequence[Step]) -> tuple[float, float]:
        """Judge a list from the start; what it begins with as the last one did stays."""
        same = 0
        for (step, _), other in zip(self._ran, steps, strict=False):
            if step is not other:
                break
            same += 1
        self.state.rollback(self._ran[same][1] if self._ran[same:] else self._end())
        ran = self._ran[:same]
        for number, step in enumerate(steps[same:], same):
            mark = self.state.mark()
            self.apply(step, str(number))
            ran.append((step, mark))
        self._ran, self._ran_to = ran, self.state.mark()
        return self.judge()

    def _end(self) -> int:
        return self._ran_to if self._ran else self._start

    def wrong_leaves(self) -> dict[str, tuple[int, list[Entry]]]:
        """By axis the leaves that are cut, and should not be; and which step did it."""
        found: dict[str, tuple[int, dict[str, set[int]]]] = {}
        nodes = self.quotient.graph.input_nodes
        for path, node in zip(self.found.paths, nodes, strict=True):
            wanted = {axis for axis, _, _ in self._target[node.index]}
            for axis in self.found.mesh.axes:
                unit = self.found.sub_axes[axis][0]
                if unit in wanted or unit not in self.state.factor_of[node.index]:
                    continue
                name = self.state.causes[node.index, unit].tactic
                first, paths = found.setdefault(axis, (len(self.found.paths), {}))
                paths.setdefault(without_indices(path), set()).add(node.index)
                found[axis] = min(first, int(name or 0)), paths
        return {
            axis: (
                first,
                [Entry(p, REPLICATED, tuple(sorted(own))) for p, own in paths.items()],
            )
            for axis, (first, paths) in found.items()
        }

    # -- what could be cut --------------------------------------------------------------

    def leaves(self) -> list[Step]:
        """A step for each leaf, by the dim that the target cuts."""
        found: dict[tuple[str, str, int | Sum], set[int]] = {}
        graph = self.quotient.graph
        for path, node in zip(self.found.paths, graph.input_nodes, strict=True):
            for axis, where in self.wanted(node):
                key = axis, without_indices(path), where
                found.setdefault(key, set()).add(node.index)
        return [
            Step(axis, (Entry(path, where, tuple(sorted(nodes))),))
            for (axis, path, where), nodes in found.items()
        ]

    def ops(self) -> list[Step]:
        """A step for each site; for each kind of op there where the target wants it."""
        places = sites_of(self.found.graph).place_of
        found: dict[tuple[str, Place], dict[int | Sum, dict[int, set[int]]]] = {}
        for node, own in zip(
            self.quotient.graph.nodes, self.quotient.members, strict=True
        ):
            if own[0] in places:
                place, number = places[own[0]]
                for axis, where in self.wanted(node):
                    alike = found.setdefault((axis, place), {}).setdefault(where, {})
                    alike.setdefault(number, set()).add(node.index)
        steps: list[Step] = []
        for (axis, place), wheres in found.items():
            for where, alike in wheres.items():
                for number, nodes in self._told_apart(place, len(wheres), alike):
                    entry = Entry((place, number), where, tuple(sorted(nodes)))
                    steps.append(Step(axis, (entry,)))
        weights = self.quotient.weights

        def weight(step: Step) -> float:
            return sum(weights[i] for i in step.entries[0].nodes)

        return sorted(steps, key=weight, reverse=True)[:_MOST_SITES]

    def _told_apart(
        self, place: Place, num_ways: int, alike: Mapping[int, set[int]]
    ) -> Iterator[tuple[int | None, set[int]]]:
        """All ops of a site as one if they want the same, else each kind by itself."""
        if num_ways == 1 and len(alike) == self._num_kinds[place]:
            yield None, {i for nodes in alike.values() for i in nodes}
            return
        yield from alike.items()

    def wanted(self, node: Node) -> Iterator[tuple[str, int | Sum]]:
        """Per axis of the user that cuts a node in the target the dim that it cuts."""
        factors = {axis: factor for axis, factor, _ in self._target[node.index]}
        for axis in self.found.mesh.axes:
            for unit in self.found.sub_axes[axis][:1]:
                where = self._where(node, factors.get(unit))
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

"""A short list of cuts that, propagated in order, bring about given decisions.

Greedy: of all leaves and ops that the target cuts, first those whose propagation decides
most as the target does and nothing else, then those that also decide some otherwise; at
last what proves needless is left out.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.autoplan.quotient import Quotient, start_on, without_indices
from meshwright.propagate import Node, State
from meshwright.tactics import Workspace
from meshwright.tactics.primitives import Choice
from meshwright.tactics.sites import Place, sites_of
from meshwright.tactics.workspace import Sum

_PENALTIES = (8.0, 2.0, 1.0)
"""What a wrong decision weighs beside a right one, pass by pass: first what is clean."""
_OVERCUT = 0.5
"""How wrong it is to cut what the target keeps whole."""
_LEAST = 1e-3
"""Share of all decisions that a cut must bring about to be worth a line."""
_NEEDLESS = 2e-6
"""Share of all decisions for which a line is not kept."""
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

    def apply(self, step: Step) -> None:
        """Take one step on top of the state."""
        nodes = self.quotient.graph.nodes
        seeds: list[tuple[str, Node, int | Sum]] = []
        for entry in step.entries:
            own = [("", nodes[i]) for i in entry.nodes]
            if isinstance(entry.where, Choice):
                self.work.block(own, [step.axis])
            else:
                seeds += [("", node, entry.where) for _, node in own]
        self.work.cut(seeds, step.axis, "")
        self.work.refusals.clear()

    def run(self, steps: Sequence[Step]) -> tuple[float, float]:
        """Judge a list from the start."""
        self.state.rollback(self._start)
        for step in steps:
            self.apply(step)
        return self.judge()

    # -- searching --------------------------------------------------------------------

    def search(self) -> list[Step]:
        """A short list of steps, and what it decides as the target does."""
        steps: list[Step] = []
        self.state.rollback(self._start)
        leaves = self._leaves()
        entries = [*leaves, *self._ops()]
        for penalty in _PENALTIES:
            steps += self._greedy(entries, penalty, _LEAST * self.total)
        steps += self._greedy(leaves, _PENALTIES[0], 1.0)
        return self._joined(self._pruned(steps))

    def _greedy(
        self, entries: Sequence[Step], penalty: float, least: float
    ) -> Iterator[Step]:
        """The best first; what it gained before bounds what a cut can gain now."""
        queue = [(-self.total, i) for i in range(len(entries))]
        heapq.heapify(queue)
        before = self.judge()
        while queue and self.clock() < self.until:
            _, number = heapq.heappop(queue)
            mark = self.state.mark()
            self.apply(entries[number])
            right, wrong = self.judge()
            gain = right - before[0] - penalty * (wrong - before[1])
            gain *= _liking(entries[number].entries[0])
            if gain < least:
                self.state.rollback(mark)
            elif queue and -gain > queue[0][0]:
                self.state.rollback(mark)
                heapq.heappush(queue, (-gain, number))
            else:
                before = right, wrong
                yield entries[number]

    def _value(self, steps: Sequence[Step]) -> float:
        right, wrong = self.run(steps)
        return right - wrong

    def _pruned(self, steps: list[Step]) -> list[Step]:
        """Without the steps that the others make needless, the smallest first."""
        best = self._value(steps)
        for step in reversed(list(steps)):
            if self.clock() >= self.until:
                break
            rest = [s for s in steps if s is not step]
            value = self._value(rest)
            if value >= best - _NEEDLESS * self.total:
                best, steps = max(value, best), rest
        return steps

    def _joined(self, steps: list[Step]) -> list[Step]:
        """Steps on one axis that can be taken together are one."""
        best = self._value(steps)
        done: list[Step] = []
        for number, step in enumerate(steps):
            for place in reversed(range(len(done))):
                if not _is_alike(done[place], step) or self.clock() >= self.until:
                    continue
                entries = (*done[place].entries, *step.entries)
                tried = done.copy()
                tried[place] = Step(step.axis, entries)
                value = self._value([*tried, *steps[number + 1 :]])
                if value >= best - _NEEDLESS * self.total:
                    best, done = max(value, best), tried
                    break
            else:
                done.append(step)
        return done

    def _leaves(self) -> list[Step]:
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

    def _ops(self) -> list[Step]:
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
            for unit in self.found.units[axis][:1]:
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


def _liking(entry: Entry) -> float:
    """Leaves read better than ops, and ops better than some of the ops of a line."""
    if isinstance(entry.key, str):
        return 1.0
    return 0.9 if entry.key[1] is None else 0.8


def _is_alike(one: Step, other: Step) -> bool:
    same = one.entries[0].is_leaf == other.entries[0].is_leaf
    return same and one.axis == other.axis

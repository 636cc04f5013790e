"""A short list of cuts that brings about given decisions.

Greedy: of all leaves and ops that the target cuts, first those whose propagation decides
most as the target does and nothing else, then those that also decide some otherwise.
Then leaves that were cut and should not be are kept whole from the start, what proves
needless is left out, and what can be taken together is one tactic.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from meshwright.planner.spelling.imitate import Entry, Imitation, Step

_PASSES = ((False, 8.0, 1e-4), (True, 8.0, 1e-3), (True, 2.0, 1e-3), (True, 1.0, 1e-3))
"""Whether ops are tried beside leaves; what a wrong decision weighs beside a right one;
and the share of all decisions that a cut must bring about to be worth a line."""

_NEEDLESS = 2e-6
"""Share of all decisions for which a line is not kept."""


def compose(imitation: Imitation) -> Iterator[list[Step]]:
    """Steps in order, none of them needless; then with leaves kept whole, if any."""
    return _Composer(imitation).run()


class _Composer:
    def __init__(self, imitation: Imitation) -> None:
        self.imitation = imitation
        self._needless = _NEEDLESS * imitation.total

    def run(self) -> Iterator[list[Step]]:
        leaves = self.imitation.leaves()
        entries = [*leaves, *self.imitation.ops()]
        self.imitation.run(())
        steps: list[Step] = []
        for with_ops, penalty, share in _PASSES:
            tried = entries if with_ops else leaves
            steps += self._greedy(tried, penalty, share * self.imitation.total)
        steps += self._greedy(leaves, _PASSES[0][1], 1.0)
        steps = self._pruned(steps)
        yield self._joined(steps)
        more = self._kept_whole(steps)
        if more != steps:
            yield self._joined(self._pruned(more))

    def _is_over(self) -> bool:
        return self.imitation.clock() >= self.imitation.until

    def _value(self, steps: Sequence[Step]) -> float:
        right, wrong = self.imitation.run(steps)
        return right - wrong

    def _greedy(
        self, entries: Sequence[Step], penalty: float, least: float
    ) -> Iterator[Step]:
        """The best first; what it gained before bounds what a cut can gain now."""
        judge, state = self.imitation.judge, self.imitation.state
        queue = [(-self.imitation.total, i) for i in range(len(entries))]
        heapq.heapify(queue)
        before = judge()
        while queue and not self._is_over():
            _, number = heapq.heappop(queue)
            mark = state.mark()
            self.imitation.apply(entries[number])
            right, wrong = judge()
            gain = right - before[0] - penalty * (wrong - before[1])
            gain *= _liking(entries[number].entries[0])
            if gain < least:
                state.rollback(mark)
            elif queue and -gain > queue[0][0]:
                state.rollback(mark)
                heapq.heappush(queue, (-gain, number))
            else:
                before = right, wrong
                yield entries[number]

    def _kept_whole(self, steps: list[Step]) -> list[Step]:
        """With leaves kept whole, before the first step that cuts them."""
        best = self._value(steps)
        for axis in self.imitation.found.mesh.axes:
            self.imitation.run(steps)
            found = self.imitation.wrong_leaves().get(axis)
            if found is None:
                continue
            place, entries = found
            tried = [*steps[:place], Step(axis, tuple(entries)), *steps[place:]]
            value = self._value(tried)
            if value > best + self._needless:
                best, steps = value, tried
        return steps

    def _pruned(self, steps: list[Step]) -> list[Step]:
        """Without the steps that the others make needless, the smallest first."""
        best = self._value(steps)
        for step in reversed(list(steps)):
            if self._is_over():
                break
            rest = [s for s in steps if s is not step]
            value = self._value(rest)
            if value >= best - self._needless:
                best, steps = max(value, best), rest
        return steps

    def _joined(self, steps: list[Step]) -> list[Step]:
        """Steps on one axis that can be taken together are one: neighbours, then all."""
        best = self._value(steps)
        done: list[Step] = []
        for run in _runs(steps):
            left = steps[sum(len(s.entries) for s in done) + len(run) :]
            done += self._blocks(done, run, left, best)
        for step in list(done):
            place = next(i for i, s in enumerate(done) if s is step)
            for other in reversed(range(place)):
                if not _is_alike(done[other], step) or self._is_over():
                    continue
                tried = [*done[:place], *done[place + 1 :]]
                tried[other] = _union([done[other], step])
                if self._value(tried) >= best - self._needless:
                    done = tried
                    break
        return done

    def _blocks(
        self, before: list[Step], run: list[Step], left: list[Step], best: float
    ) -> list[Step]:
        """Neighbours as one step, or the halves of them each as few as can be."""
        if len(run) == 1 or self._is_over():
            return run
        union = _union(run)
        if self._value([*before, union, *left]) >= best - self._needless:
            return [union]
        half = len(run) // 2
        first = self._blocks(before, run[:half], [*run[half:], *left], best)
        return [*first, *self._blocks([*before, *first], run[half:], left, best)]


def _runs(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Neighbours that are alike."""
    run: list[Step] = []
    for step in steps:
        if run and not _is_alike(run[0], step):
            yield run
            run = []
        run.append(step)
    if run:
        yield run


def _union(steps: Sequence[Step]) -> Step:
    return Step(steps[0].axis, tuple(e for s in steps for e in s.entries))


def _liking(entry: Entry) -> float:
    """Leaves read better than ops, and ops better than some of the ops of a line."""
    if isinstance(entry.key, str):
        return 1.0
    return 0.9 if entry.key[1] is None else 0.8


def _is_alike(one: Step, other: Step) -> bool:
    same = one.entries[0].is_leaf == other.entries[0].is_leaf
    return same and one.axis == other.axis

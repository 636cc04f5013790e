"""Spelling: a found plan as people would write it, a short list of ordinary tactics.

Most of a plan follows by propagation from a few decisions ("cuts"). The search for
these is greedy, over all input leaves and ops that the plan shards, on a graph in which
equal layers are one. It first takes cuts whose propagation agrees with the plan most
and hardly ever disagrees, then also cuts that disagree. Then leaves that propagation
shards against the plan are replicated beforehand, steps that change nothing are
dropped, and steps that can be taken together become one tactic.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.planner.spelling.plan_matcher import CutEntry, CutStep, PlanMatcher
from meshwright.planner.spelling.tactic_patterns import write_tactics

_PASSES = ((False, 8.0, 1e-4), (True, 8.0, 1e-3), (True, 2.0, 1e-3), (True, 1.0, 1e-3))
"""Greedy passes of the search, each with three parameters.

They are whether ops are tried as well as input leaves; the penalty of a decision that
disagrees with the plan, relative to one that agrees; and the least share of all
decisions that a step must add.
"""

_NEEDLESS = 2e-6
"""Share of all decisions; a line is dropped if no more than this is lost without it."""


def spellings(
    found: Workspace,
    start: Workspace,
    is_over: Callable[[], bool],
    count: Callable[[int], None] = lambda num_nodes: None,
) -> Iterator[tuple[Tactic, ...]]:
    """Lists of tactics that propagate to nearly all decisions of a found plan.

    Differences arise because propagation is more regular than the plan; a simulation
    shows whether they cost time.
    start: the same graph before any decision of the search.
    is_over: whether the time is over; the best list so far is then taken.
    count: function that is called with the number of nodes each time that a list is
        scored.
    """
    matcher = PlanMatcher(found, start, is_over, count)
    for steps in _CutSearch(matcher).run():
        yield write_tactics(matcher, steps)


class _CutSearch:
    def __init__(self, matcher: PlanMatcher) -> None:
        self.matcher = matcher
        self._needless = _NEEDLESS * matcher.total

    def run(self) -> Iterator[list[CutStep]]:
        """Lists of steps: one without replicated leaves, then one with, if better."""
        leaves = self.matcher.leaf_steps()
        entries = [*leaves, *self.matcher.op_steps()]
        self.matcher.score_list(())
        steps: list[CutStep] = []
        for with_ops, penalty, share in _PASSES:
            tried = entries if with_ops else leaves
            steps += self._greedy(tried, penalty, share * self.matcher.total)
        steps += self._greedy(leaves, _PASSES[0][1], 1.0)
        steps = self._pruned(steps)
        yield self._joined(steps)
        more = self._with_replicated(steps)
        if more != steps:
            yield self._joined(self._pruned(more))

    def _value(self, steps: Sequence[CutStep]) -> float:
        right, wrong = self.matcher.score_list(steps)
        return right - wrong

    def _greedy(
        self, entries: Sequence[CutStep], penalty: float, least: float
    ) -> Iterator[CutStep]:
        """The entries that add enough to the score, the best first.

        Lazy greedy (Minoux, 1978): the gain of an entry when it was last tried is an
        upper bound of its present gain, so that few entries are tried more than once.
        penalty: weight of decisions that disagree with the plan.
        least: smallest gain of an entry that is taken.
        """
        score, state = self.matcher.score, self.matcher.state
        queue = [(-self.matcher.total, i) for i in range(len(entries))]  # is a heap
        before = score()
        while queue and not self.matcher.is_over():
            _, number = heapq.heappop(queue)
            mark = state.mark()
            self.matcher.apply(entries[number])
            right, wrong = score()
            gain = right - before[0] - penalty * (wrong - before[1])
            gain *= _readability(entries[number].entries[0])
            if gain < least:
                state.rollback(mark)
            elif queue and -gain > queue[0][0]:
                state.rollback(mark)
                heapq.heappush(queue, (-gain, number))
            else:
                before = right, wrong
                yield entries[number]

    def _with_replicated(self, steps: list[CutStep]) -> list[CutStep]:
        """The steps, with leaves replicated before the first step that shards them.

        Only leaves are added that the plan replicates, and only if this raises the
        score.
        """
        best = self._value(steps)
        for axis in self.matcher.found.mesh.axes:
            self.matcher.score_list(steps)
            place, entries = self.matcher.oversharded_leaves(axis)
            if not entries:
                continue
            tried = [*steps[:place], CutStep(axis, tuple(entries)), *steps[place:]]
            value = self._value(tried)
            if value > best + self._needless:
                best, steps = value, tried
        return steps

    def _pruned(self, steps: list[CutStep]) -> list[CutStep]:
        """The steps without needless ones.

        Removal is tried from the last step to the first.
        """
        best = self._value(steps)
        for step in reversed(list(steps)):
            if self.matcher.is_over():
                break
            rest = [s for s in steps if s is not step]
            value = self._value(rest)
            if value >= best - self._needless:
                best, steps = max(value, best), rest
        return steps

    def _joined(self, steps: list[CutStep]) -> list[CutStep]:
        """The steps, merged into fewer tactics if the score does not fall.

        Neighbouring steps are merged first, then any steps along one axis.
        """
        best = self._value(steps)
        done: list[CutStep] = []
        for _, own in groupby(steps, key=_kind):
            run = list(own)
            left = steps[sum(len(s.entries) for s in done) + len(run) :]
            done += self._blocks(done, run, left, best)
        for step in list(done):
            place = next(i for i, s in enumerate(done) if s is step)
            for other in reversed(range(place)):
                if _kind(done[other]) != _kind(step) or self.matcher.is_over():
                    continue
                tried = [*done[:place], *done[place + 1 :]]
                tried[other] = _union([done[other], step])
                if self._value(tried) >= best - self._needless:
                    done = tried
                    break
        return done

    def _blocks(
        self,
        before: list[CutStep],
        run: list[CutStep],
        left: list[CutStep],
        best: float,
    ) -> list[CutStep]:
        """Neighbouring steps `run`, merged into one if the score does not fall.

        Otherwise each half is merged by itself in the same way.
        before, left: the steps before and after `run`.
        best: the score to keep.
        """
        if len(run) == 1 or self.matcher.is_over():
            return run
        union = _union(run)
        if self._value([*before, union, *left]) >= best - self._needless:
            return [union]
        half = len(run) // 2
        first = self._blocks(before, run[:half], [*run[half:], *left], best)
        return [*first, *self._blocks([*before, *first], run[half:], left, best)]


def _union(steps: Sequence[CutStep]) -> CutStep:
    return CutStep(steps[0].axis, tuple(e for s in steps for e in s.entries))


def _readability(entry: CutEntry) -> float:
    """A preference among equal gains: input leaves, all ops of a site, some ops."""
    if isinstance(entry.key, str):
        return 1.0
    return 0.9 if entry.key[1] is None else 0.8


def _kind(step: CutStep) -> tuple[bool, str]:
    """A key that is equal for steps that may be merged into one tactic."""
    return step.entries[0].is_leaf, step.axis

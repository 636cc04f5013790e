"""Goals one after another: each starts where the one before ended.

What a sum of objectives hides from a search, a sequence of them shows: first time along
one axis, then along the next, then memory (the meta-controller of Alabed et al., arXiv
2210.06352).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from meshwright.errors import SearchError
from meshwright.search.loop.budget import Budget, Result
from meshwright.search.loop.engine import Engine, OnImprovement, search
from meshwright.search.loop.problem import Problem


@dataclass(frozen=True, slots=True)
class Goal[S, A]:
    """An objective of its own, over some of the actions.

    actions_fn: of a state and its actions, those that serve this goal; all by default.
    share: of the budget, beside the shares of the goals that are still to come.
    """

    name: str
    cost_fn: Callable[[S], float]
    actions_fn: Callable[[S, Sequence[A]], Sequence[A]] | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        if not self.share > 0:
            raise SearchError(f"goal {self.name!r} has no share in the budget")


def search_goals[S, A: Hashable](
    problem: Problem[S, A],
    goals: Sequence[Goal[S, A]],
    engine: Engine,
    budget: Budget,
    *,
    on_improvement: OnImprovement[S] | None = None,
) -> tuple[Result[S, A], ...]:
    """One result per goal; the last one's state is what the goals together led to.

    A goal begins in the state that the one before left, and leaves that state unless it
    finds one that costs less by its own measure. All `actions` count from the start of
    the problem. What a goal does not use of its share is left to the next; Ctrl-C ends
    the sequence.
    """
    results: list[Result[S, A]] = []
    state, path = problem.start(), ()
    for index, goal in enumerate(goals):
        share = goal.share / sum(other.share for other in goals[index:])
        result = search(
            _Towards(problem, goal, state),
            engine,
            _part(budget, share),
            on_improvement=on_improvement,
        )
        state, path = result.state, (*path, *result.actions)
        results.append(replace(result, actions=path))
        if result.stopped == "interrupted":
            break
        budget = _less(budget, result)
    return tuple(results)


@dataclass(frozen=True, slots=True)
class _Towards[S, A: Hashable]:
    """A problem as one goal sees it."""

    problem: Problem[S, A]
    goal: Goal[S, A]
    begin: S

    def start(self) -> S:
        return self.begin

    def actions(self, state: S) -> Sequence[A]:
        actions = self.problem.actions(state)
        filter_fn = self.goal.actions_fn
        return actions if filter_fn is None else filter_fn(state, actions)

    def apply(self, state: S, action: A) -> S:
        return self.problem.apply(state, action)

    def cost(self, state: S) -> float:
        return self.goal.cost_fn(state)

    def key(self, state: S) -> Hashable:
        return self.problem.key(state)


def _part(budget: Budget, share: float) -> Budget:
    """A share of each limit, at least one evaluation and one trial."""
    return replace(
        budget,
        seconds=None if budget.seconds is None else budget.seconds * share,
        evaluations=_count(budget.evaluations, share),
        trials=_count(budget.trials, share),
    )


def _count(limit: int | None, share: float) -> int | None:
    return None if limit is None else max(round(limit * share), 1)


def _less(budget: Budget, spent: Result[object, object]) -> Budget:
    """What is left of each limit; where that is nothing, as little as can be."""
    seconds, evaluations, trials = budget.seconds, budget.evaluations, budget.trials
    return replace(
        budget,
        seconds=None if seconds is None else max(seconds - spent.seconds, 1e-9),
        evaluations=(
            None if evaluations is None else max(evaluations - spent.evaluations, 1)
        ),
        trials=None if trials is None else max(trials - spent.trials, 1),
    )

"""Searches for several goals in sequence.

Each search starts from the result of the one before. A sequence of goals can guide a
search better than the sum of their costs: for example first the time along one mesh
axis, then along the next, then memory (the meta-controller of Alabed et al., arXiv
2210.06352).
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from meshwright.errors import SearchError
from meshwright.search.loop.engine import (
    Budget,
    Engine,
    OnImprovement,
    Result,
    search,
)
from meshwright.search.loop.problem import Problem


@dataclass(frozen=True, slots=True)
class Goal[S, A]:
    """A cost to minimize, and the actions that may be used for it.

    actions_fn: function that selects, from a state and its actions, the actions allowed
        for this goal; by default all are allowed.
    share: weight of this goal when the remaining budget is divided among the remaining
        goals.
    """

    name: str
    cost_fn: Callable[[S], float]
    actions_fn: Callable[[S, Sequence[A]], Sequence[A]] | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        if not self.share > 0:
            raise SearchError(
                f"goal {self.name!r} has share {self.share}; wanted a number above 0"
            )


def search_goals[S, A: Hashable](
    problem: Problem[S, A],
    goals: Sequence[Goal[S, A]],
    engine: Engine,
    budget: Budget,
    *,
    on_improvement: OnImprovement[S] | None = None,
) -> tuple[Result[S, A], ...]:
    """Search for each goal in turn, and return one result per goal.

    Each search starts in the state of the result before, and returns that state unless
    it finds one of lower cost for its own goal. So the state of the last result is the
    overall result. The `actions` of each result lead from the start of the problem.
    Budget that a goal does not use goes to the next goals. Ctrl-C ends the sequence.
    """
    results: list[Result[S, A]] = []
    state, path = problem.start(), ()
    for index, goal in enumerate(goals):
        share = goal.share / sum(other.share for other in goals[index:])
        result = search(
            _GoalProblem(problem, goal, state),
            engine,
            _share_of(budget, share),
            on_improvement=on_improvement,
        )
        state, path = result.state, (*path, *result.actions)
        results.append(replace(result, actions=path))
        if result.stopped == "interrupted":
            break
        budget = _remaining(budget, result)
    return tuple(results)


@dataclass(frozen=True, slots=True)
class _GoalProblem[S, A: Hashable]:
    """The search problem of one goal, with its own start, actions and cost."""

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


def _share_of(budget: Budget, share: float) -> Budget:
    """The budget with each limit multiplied by `share`.

    At least one evaluation and one trial remain.
    """
    return replace(
        budget,
        seconds=None if budget.seconds is None else budget.seconds * share,
        evaluations=_count(budget.evaluations, share),
        trials=_count(budget.trials, share),
    )


def _count(limit: int | None, share: float) -> int | None:
    return None if limit is None else max(round(limit * share), 1)


def _remaining[S, A](budget: Budget, spent: Result[S, A]) -> Budget:
    """The budget that remains of each limit after a search.

    A limit that is used up becomes the smallest one that `Budget` allows.
    """

    def left[N: (int, float)](limit: N | None, used: N, least: N) -> N | None:
        return None if limit is None else max(limit - used, least)

    return replace(
        budget,
        seconds=left(budget.seconds, spent.seconds, 1e-9),
        evaluations=left(budget.evaluations, spent.evaluations, 1),
        trials=left(budget.trials, spent.trials, 1),
    )

"""The loop around every engine: prices, remembers, keeps the best, ends in time.

An engine is a generator. It yields candidates and is sent what each costs; it never sees
a budget, a clock or an earlier price, and ends by itself only when nothing is left. So
all engines keep the same promises, because one loop keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Protocol

from meshwright.errors import SearchError
from meshwright.search.loop.budget import Budget, Improvement, Result, Stopped
from meshwright.search.loop.problem import Problem

type Candidate[S, A] = tuple[Hashable, S, Sequence[A]]
"""The key of a state, the state, and the actions that lead there from the start."""

type Exploration[S, A] = Generator[Candidate[S, A], float, bool]
"""Yields candidates, is sent their costs, returns whether every state was among them."""

type OnImprovement[S] = Callable[[Improvement, S], None]


class Engine(Protocol):
    """A way of choosing candidates: a frozen record of its parameters, seed included."""

    @property
    def patience(self) -> int | None:
        """Known candidates in a row after which it is given up; `None`: never."""
        ...

    def explore[S, A: Hashable](self, problem: Problem[S, A]) -> Exploration[S, A]:
        """Candidates of a problem, the same ones each time it is called."""
        ...


def search[S, A: Hashable](
    problem: Problem[S, A],
    engine: Engine,
    budget: Budget,
    *,
    on_improvement: OnImprovement[S] | None = None,
) -> Result[S, A]:
    """The best state that the engine finds within the budget.

    The start is always priced. No key is priced twice. Ctrl-C ends the search as a limit
    does. Where a limit in seconds counts, an evaluation under way is not cut short: the
    search ends where the next would end more than half a trial too late.
    """
    run = _Run(problem, budget, on_improvement)
    is_complete = False
    try:
        stopped = run.follow(engine)
        is_complete = stopped is None
    except KeyboardInterrupt:
        stopped = "interrupted"
    return run.result(stopped or "exhausted", is_complete)


class _Run[S, A: Hashable]:
    """What a search has seen so far."""

    def __init__(
        self,
        problem: Problem[S, A],
        budget: Budget,
        on_improvement: OnImprovement[S] | None,
    ) -> None:
        self.problem = problem
        self.budget = budget
        self.on_improvement = on_improvement
        self.started = self.before = budget.clock()
        self.start = problem.start()
        self.costs: dict[Hashable, float] = {}
        self.best: tuple[float, S, tuple[A, ...]] = (math.inf, self.start, ())
        self.improvements: list[Improvement] = []
        self.trials = 0
        self.known = 0
        """Candidates in a row that had been priced before."""

    def follow(self, engine: Engine) -> Stopped | None:
        """Prices what the engine yields; which limit ended it, `None` if complete."""
        candidate: Candidate[S, A] = (self.problem.key(self.start), self.start, ())
        self._look(candidate)
        self.before = self.budget.clock()
        exploration = engine.explore(self.problem)
        limit, patience = self.budget.trials, engine.patience
        cost: float | None = None
        while limit is None or self.trials < limit:
            if self._is_late():
                return "seconds"
            try:
                # The first send starts the generator and has nothing to tell it.
                candidate = exploration.send(cost)  # pyright: ignore[reportArgumentType]
            except StopIteration as end:
                return None if end.value else "stalled"
            cost = self._look(candidate)
            if cost is None:
                return "evaluations"
            if patience is not None and self.known >= patience:
                return "stalled"
        return "trials"

    def _is_late(self) -> bool:
        """Whether half a trial more, each as long as the last, ends after the limit."""
        if self.budget.seconds is None:
            return False
        now = self.budget.clock()
        half, self.before = (now - self.before) / 2, now
        return now - self.started + half >= self.budget.seconds

    def _look(self, candidate: Candidate[S, A]) -> float | None:
        """The cost of a candidate; `None` if it is unknown and may not be priced."""
        self.trials += 1
        cost = self.costs.get(candidate[0])
        if cost is not None:
            self.known += 1
            return cost
        if len(self.costs) == self.budget.evaluations:
            self.trials -= 1
            return None
        return self._price(candidate)

    def _price(self, candidate: Candidate[S, A]) -> float:
        key, state, actions = candidate
        cost = float(self.problem.cost(state))
        if not cost > -math.inf:
            raise SearchError(f"a state costs {cost}; wanted a number or +inf: {state}")
        self.costs[key] = cost
        self.known = 0
        if cost < self.best[0]:
            self.best = (cost, state, tuple(actions))
            seconds = self.budget.clock() - self.started
            found = Improvement(cost, len(self.costs), self.trials, seconds)
            self.improvements.append(found)
            if self.on_improvement is not None:
                self.on_improvement(found, state)
        return cost

    def result(self, stopped: Stopped, is_complete: bool) -> Result[S, A]:
        cost, state, actions = self.best
        return Result(
            state=state,
            cost=cost,
            actions=actions,
            evaluations=len(self.costs),
            trials=self.trials,
            seconds=self.budget.clock() - self.started,
            stopped=stopped,
            is_complete=is_complete,
            improvements=tuple(self.improvements),
        )

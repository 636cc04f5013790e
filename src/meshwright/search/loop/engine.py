"""The search loop around every engine: computes costs, enforces the budget, reports.

An engine is a generator: it yields candidates (states to look at) and receives their
costs. It never sees the budget, the clock or the cache of costs, and returns only when
no candidate is left. So all engines treat budgets, interrupts and repeated states
alike.
"""

import math
import time
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from meshwright.errors import SearchError
from meshwright.search.loop.problem import Problem

type Candidate[S, A] = tuple[Hashable, S, Sequence[A]]
"""A state for which an engine asks the cost.

The parts are its key, the state, and the actions that lead from the start to it.
"""

type Exploration[S, A] = Generator[Candidate[S, A], float, bool]
"""A run of an engine: a generator that yields candidates and receives their costs.

Its return value says whether it was complete, that is, whether it has yielded every
state.
"""

type Stopped = Literal[
    "exhausted", "stalled", "evaluations", "trials", "seconds", "interrupted"
]
"""The reason why a search ended.

"exhausted": all states were seen. "stalled": no new state for long (`Engine.patience`).
"evaluations", "trials", "seconds": a limit of the budget. "interrupted": Ctrl-C.
"""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a search; the first one reached ends it, and `None` is no limit.

    seconds: limit on the time by `clock`, which is real time by default.
    evaluations: limit on the number of states whose cost is computed.
    trials: limit on the number of candidates, whether their costs are known or not. A
        tree search yields one candidate per trajectory.
    """

    seconds: float | None = None
    evaluations: int | None = None
    trials: int | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        for name in ("seconds", "evaluations", "trials"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise SearchError(
                    f"a budget of {limit} {name} leaves nothing to do;"
                    f" it has to be above zero, or None for no limit"
                )


@dataclass(frozen=True, slots=True)
class Improvement:
    """A new lowest cost, and when it was found.

    evaluation, trial: numbers of states and candidates until then, this one included.
    seconds: time since the start of the search.
    """

    cost: float
    evaluation: int
    trial: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Result[S, A]:
    """The best state that a search found, and the actions that lead to it.

    cost: cost of `state`. If no feasible state was found, `state` is the start and the
        cost is infinite.
    evaluations: number of distinct states whose cost was computed.
    trials: number of candidates, including repeated ones.
    is_complete: whether every reachable state was seen, so that none costs less.
    improvements: each new lowest cost, in order.
    """

    state: S
    cost: float
    actions: tuple[A, ...]
    evaluations: int
    trials: int
    seconds: float
    stopped: Stopped
    is_complete: bool
    improvements: tuple[Improvement, ...]

    @property
    def is_feasible(self) -> bool:
        """Whether a feasible state was found."""
        return math.isfinite(self.cost)

    def __str__(self) -> str:
        how, num = "complete" if self.is_complete else self.stopped, len(self.actions)
        return (
            f"cost {self.cost:.6g} after {num} action{'s' * (num != 1)};"
            f" {self.evaluations} evaluations in {self.seconds:.2f} s, {how}"
        )


type OnImprovement[S] = Callable[[Improvement, S], None]


class Engine(Protocol):
    """A search algorithm: a frozen record of its parameters and random seed."""

    @property
    def patience(self) -> int | None:
        """Number of consecutive candidates with known costs after which a search ends.

        `None` is no limit.
        """
        ...

    def explore[S, A: Hashable](self, problem: Problem[S, A]) -> Exploration[S, A]:
        """The candidates of a problem, as a generator; each call yields the same ones."""
        ...


def search[S, A: Hashable](
    problem: Problem[S, A],
    engine: Engine,
    budget: Budget,
    *,
    on_improvement: OnImprovement[S] | None = None,
) -> Result[S, A]:
    """Search for the state of lowest cost with an engine, within a budget.

    The cost of the start is always computed, and that of each key only once. Ctrl-C
    ends the search like a limit. A computation of a cost is never cut short by the
    limit in seconds: the search ends before a trial that is expected to end more than
    half a trial after the limit.
    """
    run = _Run(problem, budget, on_improvement)
    is_complete = False
    try:
        stopped = run.follow(engine)
        is_complete = stopped is None
    except KeyboardInterrupt:
        stopped = "interrupted"
    return run.result(stopped or "exhausted", is_complete)


@dataclass(eq=False)
class _Run[S, A: Hashable]:
    """One search under way: costs by key, the best candidate and counts so far."""

    problem: Problem[S, A]
    budget: Budget
    on_improvement: OnImprovement[S] | None

    def __post_init__(self) -> None:
        self.started = self.before = self.budget.clock()
        self.start = self.problem.start()
        self.costs: dict[Hashable, float] = {}
        self.best: tuple[float, S, tuple[A, ...]] = (math.inf, self.start, ())
        self.improvements: list[Improvement] = []
        self.trials = 0
        self.known = 0
        """Number of candidates in a row that were priced before."""

    def follow(self, engine: Engine) -> Stopped | None:
        """Compute costs of an engine's candidates until it ends or a limit is hit.

        Returns the reason for the end; `None` if the engine has yielded every state.
        """
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
                # The first send starts the generator and has to be None.
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
        """Whether even the middle of one more trial would be after the limit.

        A trial is expected to take as many seconds as the last one.
        """
        if self.budget.seconds is None:
            return False
        now = self.budget.clock()
        half, self.before = (now - self.before) / 2, now
        return now - self.started + half >= self.budget.seconds

    def _look(self, candidate: Candidate[S, A]) -> float | None:
        """The cost of a candidate, from the cache or computed.

        `None` if the cost is not known and the limit on evaluations is reached.
        """
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

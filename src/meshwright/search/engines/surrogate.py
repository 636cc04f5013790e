"""Search by a model of the costs: the most promising neighbour of the best state next.

For costs that take seconds to find, such as a compilation: each is told to the model,
which then proposes the next state ("model proposes, hardware disposes").
"""

import math
import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from meshwright.errors import SearchError
from meshwright.search.loop.engine import Exploration
from meshwright.search.loop.problem import Problem


class Model(Protocol):
    """A model of gains: learns from each new cost, and weighs what may be tried next."""

    def weights(self, state: Any, actions: Sequence[Any]) -> Sequence[float]:
        """One weight per action of a state, the promise of a gain; falling order."""
        ...

    def learn(self, added: Sequence[Any], before: float, after: float) -> None:
        """Take note of the cost before and after actions were added to a state."""
        ...


@dataclass(frozen=True, slots=True)
class Surrogate:
    """Steps from the best state to neighbours in the order of the model's weights.

    A step adds the action of the largest weight that was not tried in this state, or, with
    probability `jumps`, two or three actions at once, each of a large weight. A gain makes
    the new state the best one; near misses are tried again there. Every gain is followed by
    trials without one of the earlier actions, which so lose what no longer pays.

    near: relative loss up to which an action is tried again after the next gain.
    least_gain: relative gain below which a state is not better.
    patience: candidates in a row without a gain that end the search.
    """

    seed: int
    model: Model
    jumps: float = 0.3
    near: float = 0.02
    least_gain: float = 1e-3
    losses: int | None = None
    patience: int | None = 1000

    def __post_init__(self) -> None:
        if not 0 <= self.jumps < 1:
            raise SearchError(
                f"jumps is {self.jumps}; wanted a share from 0 to below 1"
            )

    def explore[S, A: Hashable](self, problem: Problem[S, A]) -> Exploration[S, A]:
        climb = _Climb(self, problem, random.Random(self.seed))
        while self.losses is None or climb.losses < self.losses:
            added = climb.propose()
            if not added:
                return False
            yield from climb.try_adding(added)
        return False


class _Climb[S, A: Hashable]:
    """The state of one search: the best state so far, and what was tried from it."""

    def __init__(
        self, engine: Surrogate, problem: Problem[S, A], rng: random.Random
    ) -> None:
        self.engine = engine
        self.problem = problem
        self.rng = rng
        self.path: tuple[A, ...] = ()
        self.best = math.nan
        self.tried: dict[tuple[A, ...], float] = {}
        self.losses = 0

    def propose(self) -> tuple[A, ...]:
        """Actions to add to the best state; empty if all single ones were tried."""
        state = self._state(self.path)
        actions = list(self.problem.actions(state))
        weights = self.engine.model.weights(state, actions)
        ties = [self.rng.random() for _ in actions]
        ranked = sorted(range(len(actions)), key=lambda i: (-weights[i], ties[i]))
        if self.rng.random() < self.engine.jumps:
            several = self._several(state, [actions[i] for i in ranked])
            if several and several not in self.tried:
                return several
        for i in ranked:
            if (actions[i],) not in self.tried:
                return (actions[i],)
        return ()

    def _several(self, state: S, ranked: Sequence[A]) -> tuple[A, ...]:
        """Two or three actions that can follow one another, drawn from the best ones."""
        chosen: list[A] = []
        count = self.rng.choice((2, 2, 3))
        pool = list(ranked[:_POOL])
        while pool and len(chosen) < count:
            action = pool.pop(int(self.rng.random() ** 2 * len(pool)))
            if action in self.problem.actions(state):
                chosen.append(action)
                state = self.problem.apply(state, action)
        return tuple(chosen) if len(chosen) > 1 else ()

    def try_adding(self, added: tuple[A, ...]) -> Exploration[S, A]:
        if math.isnan(self.best):
            start = self.problem.start()
            self.best = yield self.problem.key(start), start, ()
        before = self.best
        cost = yield self._candidate((*self.path, *added))
        self.tried[added] = cost / before - 1
        self.engine.model.learn(added, before, cost)
        if cost < before * (1 - self.engine.least_gain):
            earlier = self.path
            self._accept((*self.path, *added), cost)
            for action in earlier if len(added) == 1 else (*earlier, *added):
                yield from self._try_without(action)
        else:
            self.losses += 1
        return False

    def _try_without(self, action: A) -> Exploration[S, A]:
        """Drop an action of the best state if the cost does not rise."""
        rest = tuple(each for each in self.path if each != action)
        if not rest or len(rest) == len(self.path):
            return False
        cost = yield self._candidate(rest)
        self.engine.model.learn((action,), cost, self.best)
        if cost <= self.best:
            self._accept(rest, cost)
        return False

    def _accept(self, path: tuple[A, ...], cost: float) -> None:
        self.path, self.best, self.losses = path, cost, 0
        near = self.engine.near
        self.tried = {a: loss for a, loss in self.tried.items() if loss > near}

    def _candidate(self, path: tuple[A, ...]) -> tuple[Hashable, S, tuple[A, ...]]:
        state = self._state(path)
        return self.problem.key(state), state, path

    def _state(self, path: tuple[A, ...]) -> S:
        state = self.problem.start()
        for action in path:
            state = self.problem.apply(state, action)
        return state


_POOL = 24
"""Best actions among which several at once are drawn."""

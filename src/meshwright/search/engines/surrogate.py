"""Search guided by a model of the costs, which chooses the change to try next.

It is meant for costs that take seconds to find, such as a compilation. The model learns
from each cost, and then proposes the next state ("model proposes, hardware disposes").
"""

import math
import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from meshwright.errors import SearchError
from meshwright.search.loop.engine import Exploration
from meshwright.search.loop.problem import Prior, Problem
from meshwright.search.loop.walk import Walker


class Model(Protocol):
    """A learned model of how much each action lowers the cost."""

    def weights(self, state: Any, actions: Sequence[Any]) -> Sequence[float]:
        """One weight per action of a state.

        Larger weights promise larger falls of the cost.
        """
        ...

    def learn(self, added: Sequence[Any], before: float, after: float) -> None:
        """Learn from the costs before and after the actions `added` were taken."""
        ...


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A hill climb from the best state, with actions ordered by a model's weights.

    A step adds the action of largest weight that was not tried in this state, or, with
    probability `jumps`, two or three actions of large weight at once. If the cost
    falls, the new state is the best one, and actions that failed narrowly are tried
    again from it. After every gain each earlier action is removed on trial, and stays
    out if the cost does not rise. When all actions have been tried, the search starts
    again from a random state.
    model: gives the weights of actions. Without a model `prior_fn` does; without
        either, all weights are equal.
    near: largest relative rise of the cost for which a failed action counts as narrow.
    least_gain: least relative fall of the cost that counts as a gain.
    losses: number of consecutive steps without a gain that ends the search; `None` is
        no limit.
    longest: largest number of actions of the random walk to a new start.
    """

    seed: int
    model: Model | None = None
    jumps: float = 0.3
    near: float = 0.02
    least_gain: float = 1e-3
    losses: int | None = None
    longest: int = 64
    prior_fn: Prior | None = None
    patience: int | None = 10_000

    def __post_init__(self) -> None:
        if not 0 <= self.jumps < 1:
            raise SearchError(
                f"jumps is {self.jumps}; wanted a share from 0 to below 1"
            )

    def explore[S, A: Hashable](self, problem: Problem[S, A]) -> Exploration[S, A]:
        climb = _Climb(self, problem, random.Random(self.seed))
        yield from climb.begin(())
        while self.losses is None or climb.losses < self.losses:
            added = climb.propose()
            if added:
                yield from climb.try_adding(added)
            else:
                yield from climb.begin(climb.random_path())
        return False


@dataclass(eq=False)
class _Climb[S, A: Hashable]:
    """The state of one run of `Surrogate`.

    That is the actions that lead to the best state, and the costs of those tried from
    there.
    """

    engine: Surrogate
    problem: Problem[S, A]
    rng: random.Random
    path: tuple[A, ...] = ()
    best: float = math.inf
    tried: dict[tuple[A, ...], float] = field(
        default_factory=dict[tuple[A, ...], float]
    )
    losses: int = 0

    def begin(self, path: tuple[A, ...]) -> Exploration[S, A]:
        """Make the state at the end of a sequence of actions the best state.

        Its cost is computed.
        """
        self.path, self.tried = path, {}
        self.losses += bool(path)
        self.best = yield self._candidate(path)
        return False

    def random_path(self) -> tuple[A, ...]:
        """The actions of a random walk from the start of the problem."""
        walker = Walker(self.problem, self.rng, None, self.engine.longest)
        actions = list[A]()
        length = int((self.engine.longest + 1) ** self.rng.random())
        walker.walk([self.problem.start()], actions, length)
        return tuple(actions)

    def propose(self) -> tuple[A, ...]:
        """Actions to add to the best state; empty if every single action was tried."""
        state = self._state(self.path)
        actions = list(self.problem.actions(state))
        weights = self._weights(state, actions)
        ties = [self.rng.random() for _ in actions]
        order = sorted(range(len(actions)), key=lambda i: (-weights[i], ties[i]))
        ranked = [actions[i] for i in order]
        if self.rng.random() < self.engine.jumps:
            several = self._several(state, ranked)
            if several and several not in self.tried:
                return several
        return next(((a,) for a in ranked if (a,) not in self.tried), ())

    def _weights(self, state: S, actions: Sequence[A]) -> Sequence[float]:
        model, prior_fn = self.engine.model, self.engine.prior_fn
        if model is not None:
            return model.weights(state, actions)
        return [0.0] * len(actions) if prior_fn is None else prior_fn(state, actions)

    def _several(self, state: S, ranked: Sequence[A]) -> tuple[A, ...]:
        """Two or three actions that can follow one another, drawn from the best.

        Empty if no two such actions are found. ranked: actions of `state` by falling
        weight.
        """
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
        before, earlier = self.best, self.path
        cost = yield self._candidate((*earlier, *added))
        self.tried[added] = cost
        if self.engine.model:
            self.engine.model.learn(added, before, cost)
        if not self._is_gain(cost):
            self.losses += 1
            return False
        self._accept((*earlier, *added), cost)
        for action in earlier if len(added) == 1 else (*earlier, *added):
            yield from self._try_without(action)
        return False

    def _is_gain(self, cost: float) -> bool:
        if math.isinf(self.best):
            return cost < self.best
        return cost < self.best - self.engine.least_gain * abs(self.best)

    def _try_without(self, action: A) -> Exploration[S, A]:
        """Remove an action of the best state's sequence, if that costs no more.

        The action stays if a later one is impossible without it.
        """
        path: list[A] = []
        state = self.problem.start()
        for each in self.path:
            if each != action and each in self.problem.actions(state):
                path.append(each)
                state = self.problem.apply(state, each)
        if len(path) != len(self.path) - 1:
            return False
        cost = yield self._candidate(tuple(path))
        if cost <= self.best:
            self._accept(tuple(path), cost)
        return False

    def _accept(self, path: tuple[A, ...], cost: float) -> None:
        self.path, self.best, self.losses = path, cost, 0
        limit = cost + self.engine.near * abs(cost)
        self.tried = {a: found for a, found in self.tried.items() if found > limit}

    def _candidate(self, path: tuple[A, ...]) -> tuple[Hashable, S, tuple[A, ...]]:
        state = self._state(path)
        return self.problem.key(state), state, path

    def _state(self, path: tuple[A, ...]) -> S:
        state = self.problem.start()
        for action in path:
            state = self.problem.apply(state, action)
        return state


_POOL = 24
"""Number of actions of largest weight from which a step with several actions draws."""

"""Random walks, and the choice among actions by weights or uniformly."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass

from meshwright.search.loop.engine import Candidate
from meshwright.search.loop.merit import Merits
from meshwright.search.loop.problem import Prior, Problem


def order[A](
    prior_fn: Prior | None, state: object, actions: Sequence[A]
) -> Sequence[A]:
    """Actions by falling weight; equal weights keep their order."""
    if prior_fn is None:
        return actions
    weights = prior_fn(state, actions)
    ranked = sorted(range(len(actions)), key=lambda i: -weights[i])
    return [actions[i] for i in ranked]


def draw_length(rng: random.Random, longest: int) -> int:
    """A random length up to `longest`, log-uniform: 0, 1 to 2, 3 to 6, 7 to 14 alike."""
    return int((longest + 2) ** rng.random()) - 1


_EVEN = 0.1
"""Share of walks, and of single draws, that ignore the prior."""


@dataclass(frozen=True, slots=True)
class Walker[S, A: Hashable]:
    """Random walks through a problem, of at most `longest` actions.

    Up to `num_draws` actions are drawn by the weights of the prior, and the one of the
    largest merit is taken. A tenth of the walks ignores the prior, so that weights exclude
    no action.
    """

    problem: Problem[S, A]
    rng: random.Random
    prior_fn: Prior | None
    longest: int
    merits: Merits[A] | None = None
    num_draws: int = 1

    def draw(self, state: S, actions: Sequence[A]) -> A:
        """A random action, by prior and merit."""
        return self._draw(state, actions, self._maybe_prior())

    def walk(self, states: list[S], actions: list[A], length: int) -> bool:
        """Append states and actions in place; whether the walk may continue."""
        problem, prior_fn = self.problem, self._maybe_prior()
        state = states[-1]
        for _ in range(length):
            options = problem.actions(state)
            if not options:
                return False
            action = self._draw(state, options, prior_fn)
            state = problem.apply(state, action)
            states.append(state)
            actions.append(action)
        return True

    def _maybe_prior(self) -> Prior | None:
        """The prior for the next draw or walk; `None` if it is to be uniform."""
        is_even = self.prior_fn is None or self.rng.random() < _EVEN
        return None if is_even else self.prior_fn

    def _draw(self, state: S, actions: Sequence[A], prior_fn: Prior | None) -> A:
        merits, rng, size = self.merits, self.rng.random, len(actions)
        count = 1 if merits is None else 1 + int(rng() * self.num_draws)
        weights = None if prior_fn is None else prior_fn(state, actions)
        if weights is not None and sum(weights) > 0:
            drawn = self.rng.choices(actions, weights, k=count)
        else:
            drawn = [actions[int(rng() * size)] for _ in range(count)]
        return drawn[0] if merits is None else max(drawn, key=merits.of)

    def roll_out(
        self, states: list[S], actions: list[A]
    ) -> Generator[Candidate[S, A], float, float]:
        """Extend a trajectory at random in place, and return the cost of its end.

        While the end is infeasible the walk continues, twice as far each time. It so finds
        feasible states whether these need many decisions or few.
        """
        problem, begin = self.problem, len(actions)
        length = draw_length(self.rng, self.longest)
        while True:
            goes_on = self.walk(states, actions, length)
            cost = yield problem.key(states[-1]), states[-1], actions
            walked = len(actions) - begin
            if cost < math.inf or not goes_on or walked >= self.longest:
                return cost
            length = min(max(walked, 1), self.longest - walked)

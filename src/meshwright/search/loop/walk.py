"""Choosing among actions, by weights or evenly, and walking at random."""

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
    """Actions from the largest weight to the smallest, equal ones as they were."""
    if prior_fn is None:
        return actions
    weights = prior_fn(state, actions)
    ranked = sorted(range(len(actions)), key=lambda i: -weights[i])
    return [actions[i] for i in ranked]


def draw_length(rng: random.Random, longest: int) -> int:
    """From 0 to `longest`, each scale as often: 0, 1 to 2, 3 to 6, 7 to 14, ..."""
    return int((longest + 2) ** rng.random()) - 1


_EVEN = 0.1
"""Share of the walks, and of single draws, that ask no prior."""


@dataclass(frozen=True, slots=True)
class Walker[S, A: Hashable]:
    """Walks at random through a problem, `longest` actions at most.

    Of up to `num_draws` actions drawn by the weights, the one of the largest merit is
    taken. Now and then the weights do not count, so that none is ruled out.
    """

    problem: Problem[S, A]
    rng: random.Random
    prior_fn: Prior | None
    longest: int
    merits: Merits[A] | None = None
    num_draws: int = 1

    def draw(self, state: S, actions: Sequence[A]) -> A:
        """One of the actions."""
        return self._draw(state, actions, self._now_and_then())

    def walk(self, states: list[S], actions: list[A], length: int) -> bool:
        """Appends states and actions in place; whether more can be done at the end."""
        problem, prior_fn = self.problem, self._now_and_then()
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

    def _now_and_then(self) -> Prior | None:
        """The prior, if it is to be asked for the next draw or walk."""
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
        """Walks on in place, yields where it ends, and returns the cost there.

        Where an end cannot be used it walks on, twice as far each time: what has to be
        complete to be worth anything is found as well as what may stop anywhere.
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

"""Choosing among actions, by weights or evenly, and walking at random."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass

from meshwright.search.engine import Candidate
from meshwright.search.merit import Merits
from meshwright.search.problem import Prior, Problem


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
"""Share of the draws that ask no prior."""


@dataclass(frozen=True, slots=True)
class Walker[S, A: Hashable]:
    """Walks at random through a problem, `longest` actions at most.

    Of `num_draws` actions drawn by the weights, the one with the largest merit is taken.
    Now and then the weights do not count, so that an action of weight zero has a chance.
    """

    problem: Problem[S, A]
    rng: random.Random
    prior_fn: Prior | None
    longest: int
    merits: Merits[A] | None = None
    num_draws: int = 1

    def draw(self, state: S, actions: Sequence[A]) -> A:
        """One of the actions."""
        count, merits = self.num_draws, self.merits
        if self.prior_fn is None or self.rng.random() < _EVEN:
            rng, size = self.rng.random, len(actions)
            if merits is None:
                return actions[int(rng() * size)]
            drawn = [actions[int(rng() * size)] for _ in range(count)]
        else:
            weights = self.prior_fn(state, actions)
            if not sum(weights) > 0:
                weights = [1.0] * len(actions)
            drawn = self.rng.choices(actions, weights, k=count)
        return drawn[0] if merits is None else max(drawn, key=merits.of)

    def walk(self, states: list[S], actions: list[A], length: int) -> bool:
        """Appends states and actions in place; whether more can be done at the end."""
        problem = self.problem
        state = states[-1]
        for _ in range(length):
            options = problem.actions(state)
            if not options:
                return False
            action = self.draw(state, options)
            state = problem.apply(state, action)
            states.append(state)
            actions.append(action)
        return True

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

"""Choosing among actions, by weights or evenly, and walking at random."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass

from meshwright.search.engine import Candidate
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


@dataclass(frozen=True, slots=True)
class Walker[S, A: Hashable]:
    """Walks at random through a problem, `longest` actions at most."""

    problem: Problem[S, A]
    rng: random.Random
    prior_fn: Prior | None
    longest: int

    def draw(self, state: S, actions: Sequence[A]) -> A:
        """One of the actions, as often as its share of the weights."""
        if self.prior_fn is not None:
            weights = self.prior_fn(state, actions)
            if sum(weights) > 0:
                return self.rng.choices(actions, weights)[0]
        return actions[int(self.rng.random() * len(actions))]

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

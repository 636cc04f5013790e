"""Actions in a row and the states between them; walks, replays and small changes."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass

from meshwright.search.engine import Candidate
from meshwright.search.problem import Prior, Problem


@dataclass(frozen=True, slots=True)
class Trajectory[S, A]:
    """From `states[0]`, action `i` leads from state `i` to state `i + 1`."""

    states: tuple[S, ...]
    actions: tuple[A, ...]

    def before(self, index: int) -> Trajectory[S, A]:
        """Its first `index` actions."""
        return Trajectory(self.states[: index + 1], self.actions[:index])


def replay[S, A: Hashable](
    problem: Problem[S, A], begin: Trajectory[S, A], actions: Iterable[A]
) -> Trajectory[S, A]:
    """A trajectory continued by those actions that can be done when it is their turn."""
    states, done = list(begin.states), list(begin.actions)
    for action in actions:
        if action in problem.actions(states[-1]):
            states.append(problem.apply(states[-1], action))
            done.append(action)
    return Trajectory(tuple(states), tuple(done))


def order[A](
    prior_fn: Prior | None, state: object, actions: Sequence[A]
) -> Sequence[A]:
    """Actions from the largest weight to the smallest, equal ones as they were."""
    if prior_fn is None:
        return actions
    weights = prior_fn(state, actions)
    ranked = sorted(range(len(actions)), key=lambda i: -weights[i])
    return [actions[i] for i in ranked]


def draw[A](
    rng: random.Random, prior_fn: Prior | None, state: object, actions: Sequence[A]
) -> A:
    """One of the actions, as often as its share of the weights."""
    if prior_fn is not None:
        weights = prior_fn(state, actions)
        if sum(weights) > 0:
            return rng.choices(actions, weights)[0]
    return actions[int(rng.random() * len(actions))]


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

    def walk(self, states: list[S], actions: list[A], length: int) -> bool:
        """Appends states and actions in place; whether more can be done at the end."""
        problem, rng, prior_fn = self.problem, self.rng, self.prior_fn
        state = states[-1]
        for _ in range(length):
            options = problem.actions(state)
            if not options:
                return False
            action = draw(rng, prior_fn, state, options)
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

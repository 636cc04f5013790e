"""Evolutionary search over sequences of actions.

New sequences arise by mutation and crossover of good ones, and replace the worst.
"""

import random
from bisect import bisect_left
from collections.abc import Hashable
from dataclasses import dataclass

from meshwright.errors import SearchError
from meshwright.search.loop.engine import Exploration
from meshwright.search.loop.problem import Prior, Problem
from meshwright.search.loop.walk import Trajectory, Walker, cross, mutate


@dataclass(frozen=True, slots=True)
class Evolution:
    """Steady-state evolution: one child at a time, with tournament selection.

    An individual is a trajectory: a sequence of actions from the start. A child takes
    over its parents' actions in their order, without actions that have become
    impossible. It joins the population if its last state is new; the individual of
    highest cost then leaves.
    population: number of individuals.
    crossing: share of children with two parents.
    strangers: share of children that are random walks instead.
    longest: largest number of actions of a trajectory.
    """

    seed: int
    population: int = 32
    crossing: float = 0.5
    strangers: float = 0.05
    longest: int = 64
    prior_fn: Prior | None = None
    patience: int | None = 10_000

    def __post_init__(self) -> None:
        if self.population < 2:
            raise SearchError(f"a population of {self.population} has no two parents")

    def explore[S, A: Hashable](self, problem: Problem[S, A]) -> Exploration[S, A]:
        rng = random.Random(self.seed)
        walker = Walker(problem, rng, self.prior_fn, self.longest)
        start = problem.start()
        living: list[tuple[float, Trajectory[S, A]]] = []
        born: set[Hashable] = set()
        while True:
            # Until the population is complete, half of the children are random walks.
            share = 0.5 if len(living) < self.population else self.strangers
            if len(living) < 2 or rng.random() < share:
                states, actions = [start], list[A]()
                cost = yield from walker.roll_out(states, actions)
                child = Trajectory(tuple(states), tuple(actions))
                key = problem.key(states[-1])
            else:
                child = self._breed(walker, living)
                key = problem.key(child.states[-1])
                cost = yield key, child.states[-1], child.actions
            if key not in born:
                born.add(key)
                place = bisect_left(living, cost, key=lambda entry: entry[0])
                living.insert(place, (cost, child))
                if len(living) > self.population:
                    living.pop()

    def _breed[S, A: Hashable](
        self, walker: Walker[S, A], living: list[tuple[float, Trajectory[S, A]]]
    ) -> Trajectory[S, A]:
        """A child of one or two parents: the better of two random individuals each."""
        rng = walker.rng

        def parent() -> Trajectory[S, A]:
            return living[min(rng.randrange(len(living)) for _ in range(2))][1]

        child = parent()
        if rng.random() < self.crossing:
            child = cross(walker, child, parent())
            if rng.random() < 0.5:
                return child
        return mutate(walker, child)

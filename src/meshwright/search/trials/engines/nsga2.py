"""NSGA-II: evolution towards a whole front (Deb et al., IEEE TEC 2002)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from meshwright.search.arrays import Floats, Ints
from meshwright.search.trials.costs.pareto import merit_order
from meshwright.search.trials.engines.engine import (
    Batch,
    Population,
    Proposals,
    check_counts,
)
from meshwright.search.trials.space.coding import Draws
from meshwright.search.trials.space.variation import cross, mutate


@dataclass(frozen=True, slots=True)
class Nsga2:
    """Children of two parents each, of which the best of both generations live on.

    Parents win a tournament of two by rank, then by crowding distance. With a `batch`
    below the population the algorithm is closer to a steady state, and learns earlier.
    population: codes that live on. batch: children at once. crossing: share of children
        with two parents.
    """

    population: int = 40
    batch: int = 10
    crossing: float = 0.9

    def __post_init__(self) -> None:
        check_counts(self, population=2, batch=1)

    def propose(self, draws: Draws) -> Proposals:
        living = Population(len(draws.coding.genes), draws.num_costs)
        codes = draws.initial(self.population)
        while True:
            trials = yield Batch(codes)
            living.add(codes, trials)
            living.keep(merit_order(living.costs, living.violations)[: self.population])
            child = partial(child_of, draws, living.codes, self.crossing)
            codes = draws.several(self.batch, child)


def child_of(draws: Draws, living: Floats, crossing: float) -> Floats:
    """A child of parents by tournament; `living` is sorted by merit.

    crossing: probability of a second parent.
    """
    parents: Ints = draws.rng.integers(len(living), size=(2, 2)).min(axis=1)
    child = living[parents[0]]
    if draws.rng.random() < crossing:
        child = cross(draws, child, living[parents[1]])
    return mutate(draws, child)

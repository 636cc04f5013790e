"""Regularised evolution: the oldest dies, not the worst (Real et al., AAAI 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from meshwright.search.arrays import Floats
from meshwright.search.trials.costs.pareto import merit_order
from meshwright.search.trials.engines.engine import (
    Batch,
    Population,
    Proposals,
    check_counts,
)
from meshwright.search.trials.space.coding import Draws
from meshwright.search.trials.space.variation import mutate


@dataclass(frozen=True, slots=True)
class Ageing:
    """Mutants of the best of a random sample; each lives for `population` trials.

    The best of a sample is the first by rank and crowding distance among the living.
    population: codes that live. sample: codes of a tournament. batch: children at once.
    """

    population: int = 25
    sample: int = 6
    batch: int = 10

    def __post_init__(self) -> None:
        check_counts(self, population=2, sample=1, batch=1)

    def propose(self, draws: Draws) -> Proposals:
        living = Population(len(draws.coding.genes), draws.num_costs)
        codes = draws.initial(self.population)
        while True:
            trials = yield Batch(codes)
            living.add(codes, trials)
            living.keep(slice(-self.population, None))
            order = merit_order(living.costs, living.violations)
            mutant = partial(self._mutant, draws, living.codes[order])
            codes = draws.several(self.batch, mutant)

    def _mutant(self, draws: Draws, living: Floats) -> Floats:
        """A mutant of a tournament's winner; `living` is sorted by merit."""
        winner = draws.rng.integers(len(living), size=self.sample).min()
        return mutate(draws, living[winner], spread=5, rate=2)

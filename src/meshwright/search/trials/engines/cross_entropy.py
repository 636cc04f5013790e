"""The cross-entropy method: a distribution per gene, fitted to the best candidates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from meshwright.search.arrays import Floats
from meshwright.search.trials.costs.pareto import merit_order
from meshwright.search.trials.engines.engine import (
    Batch,
    Population,
    Proposals,
    check_counts,
)
from meshwright.search.trials.space.coding import Draws

_LEAST_SPREAD = 0.02
"""Smallest standard deviation of a number, as a share of its range."""


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Draws from distributions that move towards the elite (Rubinstein, 1999).

    Options have probabilities, numbers a normal distribution. The elite are the best by
    rank and crowding distance among the last `window` trials.
    rate: by how much a distribution moves towards the elite's.
    explore: share of genes drawn evenly.
    """

    batch: int = 20
    window: int = 80
    elite: int = 16
    rate: float = 0.5
    explore: float = 0.05

    def __post_init__(self) -> None:
        check_counts(self, batch=1, window=1, elite=2)

    def propose(self, draws: Draws) -> Proposals:
        coding = draws.coding
        recent = Population(len(coding.genes), draws.num_costs)
        codes = draws.initial(max(self.batch, self.elite))
        chances = _even(draws)
        centre, spread = (
            np.full(len(coding.genes), 0.5),
            np.full(len(coding.genes), 0.3),
        )
        while True:
            trials = yield Batch(codes)
            recent.add(codes, trials)
            recent.keep(slice(-self.window, None))
            order = merit_order(recent.costs, recent.violations)[: self.elite]
            best = coding.units(recent.codes[order])
            centre = centre + self.rate * (best.mean(axis=0) - centre)
            spread = spread + self.rate * (best.std(axis=0) - spread)
            chances = self._learned(chances, recent.codes[order])
            drawn = partial(self._drawn, draws, chances, centre, spread)
            codes = draws.several(self.batch, drawn)

    def _learned(self, chances: Floats, elite: Floats) -> Floats:
        """Chances [G, L] of levels, moved towards their shares among codes [N, G]."""
        levels = np.arange(chances.shape[1])
        shares = (elite[:, :, None] == levels).mean(axis=0)
        return chances + self.rate * (shares - chances)

    def _drawn(
        self, draws: Draws, chances: Floats, centre: Floats, spread: Floats
    ) -> Floats:
        rng, coding = draws.rng, draws.coding
        sums = chances.cumsum(axis=1)
        drawn = rng.random((len(sums), 1)) * sums[:, -1:]
        options = (sums < drawn).sum(axis=1).astype(np.float64)
        width = np.maximum(spread, _LEAST_SPREAD)
        numbers = coding.from_units(rng.normal(centre, width))
        code = np.where(coding.is_choice, options, numbers)
        even = coding.random_one(rng)
        return np.where(rng.random(len(code)) < self.explore, even, code)


def _even(draws: Draws) -> Floats:
    """Equal chances [G, L] of the options of each gene; L is the largest number."""
    coding = draws.coding
    counts = np.where(coding.is_choice, coding.high - coding.low + 1, 1)
    levels = np.arange(int(counts.max(initial=1)))
    return (levels < counts[:, None]) / counts[:, None]

"""Fireflies: candidates drawn to better ones, each with a perturbation of its own.

Reference: Yang and Deb, "Eagle Strategy Using Levy Walk and Firefly Algorithms for
Stochastic Optimization", 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from meshwright.search.arrays import Floats
from meshwright.search.trials.costs.pareto import dominates, merit_order
from meshwright.search.trials.engines.engine import (
    Batch,
    Population,
    Proposals,
    check_counts,
)
from meshwright.search.trials.space.coding import Draws

_LEAST = 0.02
"""Perturbation below which a firefly that is not the best starts again elsewhere."""


@dataclass(frozen=True, slots=True)
class Firefly:
    """A swarm in which each firefly moves towards a better one, then is perturbed.

    It moves only if that gains something; else its perturbation shrinks. A number moves by
    a share of the distance, an option is taken over with a probability.
    swarm: number of fireflies. attraction: share of the distance to a near firefly.
    visibility: how fast attraction falls with distance. perturbation: of a new firefly, as
    a share of a number's range. decay: what a perturbation is multiplied by.
    """

    swarm: int = 32
    attraction: float = 0.6
    visibility: float = 1.5
    perturbation: float = 0.3
    decay: float = 0.8

    def __post_init__(self) -> None:
        check_counts(self, swarm=2)

    def propose(self, draws: Draws) -> Proposals:
        swarm = Population(len(draws.coding.genes), draws.num_costs)
        codes = draws.initial(self.swarm)
        swarm.add(codes, (yield Batch(codes)))
        sizes = np.full(len(codes), self.perturbation)
        while True:
            order = merit_order(swarm.costs, swarm.violations)
            restarts = (sizes < _LEAST) & (np.arange(len(order)) != order[0])
            ranked = swarm.codes[order]
            codes = swarm.codes.copy()
            for place, index in enumerate(order):
                moved = partial(self._moved, draws, ranked, place, float(sizes[index]))
                codes[index] = draws.fresh(draws.random if restarts[index] else moved)
            new = Population(codes.shape[1], draws.num_costs)
            new.add(codes, (yield Batch(codes)))
            gains = dominates(
                new.costs, new.violations, swarm.costs, swarm.violations
            ).diagonal()
            sizes = np.where(restarts, self.perturbation, sizes)
            sizes = np.where(gains | restarts, sizes, sizes * self.decay)
            taken = np.flatnonzero(gains | restarts)
            swarm.codes[taken] = new.codes[taken]
            swarm.costs[taken] = new.costs[taken]
            swarm.violations[taken] = new.violations[taken]

    def _moved(self, draws: Draws, ranked: Floats, place: int, size: float) -> Floats:
        """The code at a place among the ranked ones, drawn to a better one, then shaken."""
        rng, coding = draws.rng, draws.coding
        code = ranked[place]
        if place:
            code = self._drawn(draws, code, ranked[:place])
        shaken = coding.units(code) + size * rng.laplace(size=len(code)) / 2
        jumps = rng.random(len(code)) < size
        options = np.where(jumps, coding.random_one(rng), code)
        return np.where(coding.is_choice, options, coding.from_units(shaken))

    def _drawn(self, draws: Draws, code: Floats, better: Floats) -> Floats:
        """A code nearer to one of the better ones; near ones draw the most."""
        rng, coding = draws.rng, draws.coding
        steps = coding.units(better) - coding.units(code)
        apart = np.where(coding.is_choice, better != code, np.abs(steps)).sum(axis=1)
        pulls = np.exp(-self.visibility * apart / max(1, len(code)))
        chosen = rng.choice(len(better), p=pulls / pulls.sum())
        share = self.attraction * pulls[chosen]
        nearer = coding.from_units(coding.units(code) + share * steps[chosen])
        is_taken = rng.random(len(code)) < share
        options = np.where(is_taken, better[chosen], code)
        return np.where(coding.is_choice, options, nearer)

"""Search by tree-structured Parzen estimators (Bergstra et al., NeurIPS 2011).

Two densities are estimated, of the best trials and of the others; the candidate with the
largest ratio of both is tried next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from meshwright.errors import SearchError
from meshwright.search.arrays import Floats
from meshwright.search.trials.costs.pareto import merit_order
from meshwright.search.trials.engines.engine import (
    Batch,
    Population,
    Proposals,
    check_counts,
)
from meshwright.search.trials.engines.estimates.densities import (
    KernelDensity,
    used_genes,
)
from meshwright.search.trials.space.coding import Draws

_MOST_GOOD = 25
"""Codes that count as good at most (optuna's limit)."""


@dataclass(frozen=True, slots=True)
class Parzen:
    """Candidates that are likely among the best trials and unlikely among the others.

    The best are the first by rank and crowding distance; trials that fail or violate a
    constraint are the last. Within a batch each chosen candidate counts as one of the
    others.
    initial: random candidates before the first density. batch: candidates at once.
    pool: candidates from which each batch is chosen. good: share of the best.
    """

    initial: int = 16
    batch: int = 4
    pool: int = 200
    good: float = 0.1

    def __post_init__(self) -> None:
        check_counts(self, initial=2, batch=1, pool=1)
        if not 0 < self.good < 1:
            raise SearchError(f"good is {self.good}; wanted a share between 0 and 1")

    def propose(self, draws: Draws) -> Proposals:
        past = Population(len(draws.coding.genes), draws.num_costs)
        codes = draws.initial(self.initial)
        while True:
            trials = yield Batch(codes)
            past.add(codes, trials)
            order = merit_order(past.costs, past.violations)
            count = min(math.ceil(self.good * len(order)), _MOST_GOOD)
            good, others = past.codes[order[:count]], past.codes[order[count:]]
            codes = self._chosen(draws, good, others)

    def _chosen(self, draws: Draws, good: Floats, others: Floats) -> Floats:
        """The next batch, by the ratio of both densities."""
        best = KernelDensity.of(draws.coding, good)
        pool = draws.pool(self.pool, partial(best.draw, draws))
        if len(pool) == 0:
            return draws.several(self.batch, draws.random)
        used = used_genes(draws.coding, pool)
        likely, picked = best.log_density(pool, used), list[int]()
        for _ in range(min(self.batch, len(pool))):
            rest = KernelDensity.of(
                draws.coding, np.concatenate([others, pool[picked]])
            )
            ratio = likely - rest.log_density(pool, used)
            ratio[picked] = -np.inf
            picked.append(int(np.argmax(ratio)))
        return draws.give(pool[picked])

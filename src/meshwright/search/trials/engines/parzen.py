"""Search by tree-structured Parzen estimators (Bergstra et al., NeurIPS 2011).

Two densities are estimated by kernels, of the best trials and of the others; the candidate
with the largest ratio of both is tried next. A kernel is a product over genes (Falkner et
al., "BOHB", ICML 2018), so that genes which only work together are kept together. It is a
tree, since a gene that a trial does not use says nothing: there the kernel is even.
Letters in shapes: N codes that were tried, K candidates, G genes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from meshwright.errors import SearchError
from meshwright.search.arrays import Bools, Floats
from meshwright.search.trials.costs.pareto import merit_order
from meshwright.search.trials.engines.engine import (
    Batch,
    Population,
    Proposals,
    check_counts,
)
from meshwright.search.trials.space.coding import Coding, Draws

_MOST_GOOD = 25
"""Codes that count as good at most (optuna's limit)."""

_WIDTH = 0.2
"""Deviation of a kernel of one code in one dim, in units of a gene's range (optuna)."""


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
        used = _used(draws.coding, pool)
        likely, picked = best.log_density(pool, used), list[int]()
        for _ in range(min(self.batch, len(pool))):
            rest = KernelDensity.of(
                draws.coding, np.concatenate([others, pool[picked]])
            )
            ratio = likely - rest.log_density(pool, used)
            ratio[picked] = -np.inf
            picked.append(int(np.argmax(ratio)))
        return draws.give(pool[picked])


@dataclass(frozen=True, slots=True)
class KernelDensity:
    """A density over codes: one kernel for each of some codes, and an even one.

    codes, used: [N, G]; which genes each code uses.
    """

    coding: Coding
    codes: Floats
    used: Bools

    @classmethod
    def of(cls, coding: Coding, codes: Floats) -> KernelDensity:
        return cls(coding, codes, _used(coding, codes))

    @property
    def width(self) -> float:
        """The deviation of kernels of numbers, by Scott's rule (1992)."""
        varied = int((self.coding.high > self.coding.low).sum())
        return _WIDTH * max(len(self.codes), 1) ** (-1 / (varied + 4))

    def log_density(self, codes: Floats, used: Bools) -> Floats:
        """The logarithm of the density [K] at candidates [K, G], of the used genes.

        It is relative to an even density, which so counts as 0.
        """
        both = used[:, None] & self.used[None]
        genes = np.where(both, self._log_kernels(codes), 0.0)
        kernels = genes.sum(axis=2)
        even = np.zeros((len(codes), 1))
        total = logsumexp(np.concatenate([kernels, even], axis=1), axis=1)
        return total - math.log(len(self.codes) + 1)

    def _log_kernels(self, codes: Floats) -> Floats:
        """Logarithms [K, N, G] of each gene's kernel over an even density."""
        coding = self.coding
        options = coding.high - coding.low + 1
        share = 1 / max(len(self.codes), 1)  # of each other option, as optuna has it
        same = codes[:, None] == self.codes[None]
        chance = np.where(same, 1 + share, share) / (1 + share * options)
        places, centres = coding.units(codes)[:, None], coding.units(self.codes)
        scaled = (places - centres[None]) / self.width
        inside = ndtr((1 - centres) / self.width) - ndtr(-centres / self.width)
        height = math.log(self.width * math.sqrt(2 * math.pi))
        numbers = -0.5 * scaled**2 - height - np.log(inside)
        return np.where(coding.is_choice, np.log(chance * options), numbers)

    def draw(self, draws: Draws) -> Floats:
        """A code [G] from the density; genes that the kernel's code lacks are even."""
        rng, coding = draws.rng, self.coding
        even = coding.random_one(rng)
        chosen = int(rng.integers(len(self.codes) + 1))
        if chosen == len(self.codes):
            return even
        code, options = self.codes[chosen], coding.high - coding.low + 1
        share = 1 / len(self.codes)
        again = rng.random(len(code)) < share * options / (1 + share * options)
        moved = coding.from_units(self._moved(rng, coding.units(code)))
        near = np.where(coding.is_choice, np.where(again, even, code), moved)
        return np.where(self.used[chosen], near, even)

    def _moved(self, rng: np.random.Generator, centres: Floats) -> Floats:
        """Numbers [G] from 0 to 1, drawn from normal distributions that are cut there."""
        low, high = ndtr(-centres / self.width), ndtr((1 - centres) / self.width)
        return centres + self.width * ndtri(low + rng.random(len(low)) * (high - low))


def _used(coding: Coding, codes: Floats) -> Bools:
    """Which genes each code's candidate uses, [N, G]."""
    used = np.zeros(codes.shape, np.bool_)
    for row, code in zip(used, codes, strict=True):
        row[coding.used(code)] = True
    return used

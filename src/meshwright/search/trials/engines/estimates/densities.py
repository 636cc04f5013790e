"""Densities of codes by kernels, for tree-structured Parzen estimators.

A kernel is a product over genes (Falkner et al., "BOHB", ICML 2018), so that genes which
only work together are kept together. It is a tree, since a gene that a code does not use
says nothing: there the kernel is even. Letters in shapes: N codes that were tried, K
candidates, G genes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from meshwright.search.arrays import Bools, Floats
from meshwright.search.trials.space.coding import Coding, Draws

_WIDTH = 0.2
"""Deviation of a kernel of one code in one dim, in units of a gene's range (optuna)."""


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
        return cls(coding, codes, used_genes(coding, codes))

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


def used_genes(coding: Coding, codes: Floats) -> Bools:
    """Which genes each code's candidate uses, [N, G]."""
    used = np.zeros(codes.shape, np.bool_)
    for row, code in zip(used, codes, strict=True):
        row[coding.used(code)] = True
    return used

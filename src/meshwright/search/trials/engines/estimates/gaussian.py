"""Gaussian processes over codes: a prediction of one figure, with its uncertainty.

Letters in shapes: N codes that were tried, K candidates, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from meshwright.search.arrays import Floats
from meshwright.search.trials.space.coding import Coding

_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Length scales to try, as multiples of the square root of the number of features."""

_NOISES = (1e-4, 1e-2, 1e-1)
"""Variances of noise to try, relative to the figure's."""

_RELEVANCES = (0.4, 2.5)
"""Factors to try on the length scale of each gene."""


def features(coding: Coding, codes: Floats) -> Floats:
    """Codes [..., G] as features [..., F]: numbers in units, options one by one."""
    units = coding.units(codes)
    columns: list[Floats] = []
    for index, gene in enumerate(coding.genes):
        if gene.high <= gene.low:
            continue
        if coding.is_choice[index]:
            levels = np.arange(gene.low, gene.high + 1)
            columns.append((codes[..., index, None] == levels) / np.sqrt(2))
        else:
            columns.append(units[..., index, None])
    return np.concatenate(columns or [units[..., :0]], axis=-1)


def groups(coding: Coding) -> list[int]:
    """The number of the gene to which each feature belongs, [F]."""
    numbers: list[int] = []
    for index, gene in enumerate(coding.genes):
        if gene.high > gene.low:
            width = int(gene.num_levels) if coding.is_choice[index] else 1
            numbers += [index] * width
    return numbers


@dataclass(frozen=True, slots=True)
class Posterior:
    """A fitted process; `predict` gives mean and deviation of a figure at candidates."""

    points: Floats
    weights: Floats
    factor: Floats
    alpha: Floats
    mean: float
    scale: float

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation [K] at features [K, F]."""
        across = _kernel(points * self.weights, self.points)
        mean = across @ self.alpha
        solved = solve_triangular(self.factor, across.T, lower=True)
        variance = np.maximum(1 - (solved**2).sum(axis=0), 1e-9)
        return self.mean + self.scale * mean, self.scale * np.sqrt(variance)


def fit(points: Floats, figure: Floats, owners: Sequence[int]) -> Posterior:
    """The process of largest marginal likelihood among length scales and noises.

    points: [N, F]. figure: [N]. owners: the gene of each feature, [F]; each gene's length
        scale is changed in turn if that makes the figures likelier.
    """
    mean, scale = float(figure.mean()), float(figure.std()) or 1.0
    target = (figure - mean) / scale
    base = 1 / np.sqrt(max(len(set(owners)), 1))
    tried = [
        (_evidence(points * (base / length), target, noise), length, noise)
        for length in _SCALES
        for noise in _NOISES
    ]
    best, length, noise = max(tried, key=lambda entry: entry[0])
    weights, kinds = np.full(points.shape[1], base / length), np.array(owners)
    for gene in dict.fromkeys(owners) if len(set(owners)) <= _MOST_GENES else ():
        for factor in _RELEVANCES:
            changed = np.where(kinds == gene, weights / factor, weights)
            evidence = _evidence(points * changed, target, noise)
            if evidence > best:
                best, weights = evidence, changed
    lower, alpha = _solved(points * weights, target, noise)
    return Posterior(points * weights, weights, lower, alpha, mean, scale)


_MOST_GENES = 40
"""Genes up to which each gets a length scale of its own."""


def _kernel(one: Floats, other: Floats) -> Floats:
    """Matern kernel of smoothness 5/2 between features [N, F] and [K, F]."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :]
    distance = np.sqrt(5 * np.maximum(squares - 2 * one @ other.T, 0))
    return (1 + distance + distance**2 / 3) * np.exp(-distance)


def _solved(points: Floats, target: Floats, noise: float) -> tuple[Floats, Floats]:
    kernel = _kernel(points, points)
    kernel[np.diag_indices_from(kernel)] += noise + 1e-8
    lower: Any = cho_factor(kernel, lower=True)[0]
    return np.tril(lower), cho_solve((lower, True), target)


def _evidence(points: Floats, target: Floats, noise: float) -> float:
    """Logarithm of the marginal likelihood, without its constant."""
    lower, alpha = _solved(points, target, noise)
    return float(-0.5 * target @ alpha - np.log(np.diag(lower)).sum())

"""Smooth surfaces through measured points, over the logarithms of the scales.

Single measurements vary by a per cent, which is as much as what the best model of a target
gains over its neighbours. A polynomial through all points averages that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_EXPONENTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
"""Exponents of falling powers that are tried for each scale."""

_SPARE = 2
"""Points for each coefficient, at the least."""


@dataclass(frozen=True, slots=True, eq=False)
class Surface:
    """A weighted sum of functions of the logarithms of depth, width and resolution.

    columns: which of the three it depends on, those in which the points differ.
    """

    terms: Callable[[Floats], Floats]
    coefficients: Floats
    columns: Bools

    def __call__(self, logs: Floats) -> Floats:
        return self.terms(logs[:, self.columns]) @ self.coefficients


Terms = Callable[[Floats], Floats]


def fit_times(logs: Floats, values: Floats) -> Surface | None:
    """The best polynomial through logarithms of latencies; `None` for too few points.

    logs: [N, 3], of depth, width and resolution.
    """
    return _best([(partial(_polynomial, degree=d), 0) for d in (1, 2, 3)], logs, values)


def fit_accuracy(logs: Floats, values: Floats) -> Surface | None:
    """The best surface through accuracies; `None` for too few points.

    It is curved, since a plane is highest at a corner: a polynomial, or a sum of falling
    powers of the scales, whose exponents count as coefficients.
    """
    curved: list[tuple[Terms, int]] = [
        (partial(_polynomial, degree=degree), 0) for degree in (2, 3)
    ]
    for exponents in itertools.product(_EXPONENTS, repeat=int(_varied(logs).sum())):
        powers = np.array(exponents)
        curved.append((partial(_falling_powers, exponents=powers), len(powers)))
    return _best(curved, logs, values)


def _best(
    candidates: Iterable[tuple[Terms, int]], logs: Floats, values: Floats
) -> Surface | None:
    """The candidate with the least Bayesian information criterion (Schwarz, 1978).

    candidates: terms, and the number of their parameters that were chosen besides.
    """
    count, found = len(values), list[tuple[float, Surface]]()
    varied = _varied(logs)
    for terms, num_hidden in candidates:
        columns = terms(logs[:, varied])
        number = columns.shape[1] + num_hidden
        is_full = np.linalg.matrix_rank(columns) == columns.shape[1]
        if count < _SPARE * number or not is_full:
            continue
        coefficients = np.linalg.lstsq(columns, values, rcond=None)[0]
        error = float(((columns @ coefficients - values) ** 2).mean()) or 1e-30
        score = count * math.log(error) + number * math.log(count)
        found.append((score, Surface(terms, coefficients, varied)))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _varied(logs: Floats) -> Bools:
    """The scales in which points differ."""
    return np.ptp(logs, axis=0) > 0


def _falling_powers(logs: Floats, exponents: Floats) -> Floats:
    """1 and a negative power of each scale: [N, 1 + scales].

    Errors of networks fall so in each of their scales (Rosenfeld et al., "A Constructive
    Prediction of the Generalization Error Across Scales", ICLR 2020).
    """
    return np.column_stack([np.ones(len(logs)), np.exp(-logs * exponents)])


def _polynomial(logs: Floats, degree: int) -> Floats:
    """All products of up to `degree` columns: [N, terms]."""
    columns = [np.ones(len(logs))]
    for power in range(1, degree + 1):
        scales = range(logs.shape[1])
        for chosen in itertools.combinations_with_replacement(scales, power):
            columns.append(np.prod([logs[:, i] for i in chosen], axis=0))
    return np.stack(columns, axis=1)


def fine_grid(logs: Floats, steps: int) -> Floats:
    """A regular grid over the box of the points: [steps^3, 3]."""
    axes: Sequence[Floats] = [
        np.linspace(low, high, steps)
        for low, high in zip(logs.min(axis=0), logs.max(axis=0), strict=True)
    ]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)

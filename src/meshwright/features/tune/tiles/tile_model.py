"""The model of one search: the ranker's predictions, corrected by measurements.

It is a Gaussian process over the errors of the ranker, plus an unknown constant: the
ranker's error for the kernel as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshwright.features.tune.iree.kernel import CpuKernel
from meshwright.features.tune.iree.tiling import Tiling
from meshwright.features.tune.tiles.features import tile_rows
from meshwright.features.tune.tiles.ranker import Floats, Ranker

_OFFSET, _ERROR, _NOISE = 1.0, 0.12, 0.001
"""Variances of logarithms of times: of the constant, of the ranker's errors over kernels
that it was not trained on, and of measurements (3 %)."""
_LENGTH = 0.5
"""Distance between features over which the ranker's errors stop being correlated.

The unit is the root of the number of features, each in standard deviations.
"""
_OPTIMISM = 0.5
"""Standard deviations taken off a predicted time, so that unsure tilings are tried."""
_FAILED = math.log(4)
"""Logarithm of the relative time that is recorded for a tiling that fails: 4 times."""


@dataclass(slots=True, eq=False)
class TileModel:
    """A model of one kernel's times, from which `Surrogate` chooses the next tiling.

    seen: measured tilings, each with the logarithm of its time divided by the
        default's.
    """

    kernel: CpuKernel
    ranker: Ranker
    seen: list[tuple[Tiling, float]] = field(default_factory=list)
    _rows: dict[Tiling, Floats] = field(default_factory=dict)
    _guesses: dict[Tiling, float] = field(default_factory=dict)

    def weights(self, state: Any, actions: Sequence[Tiling]) -> Sequence[float]:
        """One weight per tiling, larger for tilings that may be faster.

        A weight is minus the predicted logarithm of time, plus half a standard
        deviation.
        """
        del state
        if not actions:
            return []
        self._add([*actions, *(tiling for tiling, _ in self.seen)])
        guesses = np.array([self._guesses[a] for a in actions])
        if not self.seen:
            return (-guesses).tolist()
        tilings = [tiling for tiling, _ in self.seen]
        errors = np.array([time - self._guesses[t] for t, time in self.seen])
        within = self._covariance(tilings, tilings) + _NOISE * np.eye(len(tilings))
        across = self._covariance(actions, tilings)
        solved = np.linalg.solve(within, np.column_stack([errors, across.T]))
        means = guesses + across @ solved[:, 0]
        left = _OFFSET + _ERROR - np.einsum("ij,ji->i", across, solved[:, 1:])
        return (_OPTIMISM * np.sqrt(np.maximum(left, 0)) - means).tolist()

    def learn(self, added: Sequence[Tiling], before: float, after: float) -> None:
        """Record the last tiling's relative time `after`; `before` is not used."""
        del before
        time = math.log(after) if math.isfinite(after) else _FAILED
        self.seen.append((added[-1], time))

    def _add(self, tilings: Sequence[Tiling]) -> None:
        new = [t for t in dict.fromkeys(tilings) if t not in self._rows]
        if new:
            rows = tile_rows(self.kernel, new)
            self._rows |= zip(new, self.ranker.standardised(rows), strict=True)
            guesses = self.ranker.predict(rows).tolist()
            self._guesses |= zip(new, guesses, strict=True)

    def _covariance(self, first: Sequence[Tiling], second: Sequence[Tiling]) -> Floats:
        one, two = (np.array([self._rows[t] for t in each]) for each in (first, second))
        squares = (one**2).sum(1)[:, None] + (two**2).sum(1)[None] - 2 * one @ two.T
        distance = np.maximum(squares, 0) / (_LENGTH**2 * one.shape[1])
        return _OFFSET + _ERROR * np.exp(-distance / 2)

"""One law for depth, width and resolution, as in EfficientNet (Tan and Le, ICML 2019).

Depth a^phi, width b^phi and resolution c^phi grow together. phi counts doublings of the
operations of a convolutional net: a * b^2 * c^2 = 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.errors import NasError

_LEAST = 2
"""Fewest models from which a law is fitted."""


@dataclass(frozen=True, slots=True)
class Law:
    """Growth of each scale for one doubling of operations.

    base_resolution: resolution at depth and width 1.
    spread: root mean square of the fitted models' distance from the law, in logarithms.
    """

    depth: float
    width: float
    resolution: float
    base_resolution: float
    spread: float = 0.0

    def at(self, phi: float) -> tuple[float, float, float]:
        """Depth, width and resolution after `phi` doublings."""
        return (
            self.depth**phi,
            self.width**phi,
            self.base_resolution * self.resolution**phi,
        )

    def __str__(self) -> str:
        return (
            f"depth {self.depth:.3f}^phi, width {self.width:.3f}^phi, resolution "
            f"{self.base_resolution:.0f} x {self.resolution:.3f}^phi"
        )


def fit_law(
    scales: Sequence[tuple[float, float, float]], base: float | None = None
) -> Law:
    """The law through depth, width and resolution of models, by total least squares.

    base: resolution at depth and width 1; `None` to fit it as well.
    """
    start = (1.0, 1.0) if base is None else (1.0, 1.0, base)
    distinct = {scale for scale in scales if scale[: len(start)] != start}
    if len(distinct) < _LEAST:
        raise NasError(
            f"a law needs {_LEAST} models that differ from each other and from the base; "
            f"got {len(distinct)}: give more targets, farther apart"
        )
    logs = np.log(np.array(scales, float))
    if base is None:
        depths, sizes = logs[:, 0], logs[:, 2]
        slope, start = np.polyfit(depths, sizes, 1) if np.ptp(depths) else (0.0, 0.0)
        base = float(np.exp(start if slope else sizes.mean()))
    logs[:, 2] -= math.log(base)
    direction = np.linalg.svd(logs, full_matrices=False)[2][0]
    direction *= np.sign(direction.sum()) or 1.0
    doublings = direction @ np.array([1.0, 2.0, 2.0]) / math.log(2)
    if doublings <= 0:
        raise NasError(f"the winners {sorted(distinct)} do not grow; no law fits them")
    rest = logs - np.outer(logs @ direction, direction)
    depth, width, resolution = map(float, np.exp(direction / doublings))
    spread = float(np.sqrt((rest**2).mean()))
    return Law(depth, width, resolution, base, spread)

"""Hypervolume: the measure of the costs that a front dominates, up to a reference.

It is exact for any number of costs. The last cost is cut into slices between points, and
each slice is a hypervolume of one cost less. With four costs and 200 points that takes
about a second. Letters in shapes: N points, M costs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.search.arrays import Floats
from meshwright.search.trials.costs.pareto import front_of


def hypervolume(costs: Floats | Sequence[Sequence[float]], reference: Floats) -> float:
    """Volume that the points [N, M] dominate below the reference [M]; 0 for none.

    >>> hypervolume([(1, 3), (2, 2), (9, 9)], np.array([4.0, 4.0]))
    5.0
    """
    points = np.asarray(costs, np.float64).reshape(-1, len(reference))
    points = points[(points < reference).all(axis=1)]
    return float(_volume(_front(points), np.asarray(reference, np.float64)))


def _front(points: Floats) -> Floats:
    return points[front_of(points, np.zeros(len(points)))]


def _volume(points: Floats, reference: Floats) -> float:
    """Volume of a front, all of whose points are below the reference."""
    if len(points) == 0:
        return 0.0
    if points.shape[1] == 1:
        return float(reference[0] - points.min())
    points = points[np.argsort(points[:, -1], kind="stable")]
    if points.shape[1] == 2:
        best = np.minimum.accumulate(points[:, 0])
        heights = np.diff(points[:, 1], append=reference[1])
        return float(((reference[0] - best) * heights).sum())
    total, inner = 0.0, points[:0, :-1]
    depths = np.diff(points[:, -1], append=reference[-1])
    for point, depth in zip(points, depths, strict=True):
        if not (inner <= point[:-1]).all(axis=1).any():
            kept = inner[~(point[:-1] <= inner).all(axis=1)]
            inner = np.concatenate([kept, point[None, :-1]])
        if depth > 0:
            total += depth * _volume(inner, reference[:-1])
    return total

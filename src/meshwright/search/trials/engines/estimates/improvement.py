"""Expected hypervolume improvement of independent normal predictions, exactly.

The volume that a new point adds is cut into slices between the front's points, cost after
cost, so that each slice is a box whose expectation is a product over costs (Emmerich et
al., CEC 2011). With one cost it is the expected improvement. Letters in shapes: N points
of the front, M costs, K candidates.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from meshwright.search.arrays import Floats

_MOST = {1: 1, 2: 200, 3: 40}
"""Points of the front that are counted, by costs; more would take seconds. Else 12."""


def expected_improvement(
    mean: Floats, deviation: Floats, front: Floats, reference: Floats
) -> Floats:
    """Expected volume [K] that candidates add to a front below a reference.

    mean, deviation: [K, M]. front: [N, M], no point of which dominates another.
    """
    front = front[(front < reference).all(axis=1)]
    most = _MOST.get(front.shape[1], 12)
    if len(front) > most:
        order = np.argsort(front[:, 0], kind="stable")
        front = front[order[np.linspace(0, len(front) - 1, most).round().astype(int)]]
    return _improvement(mean, deviation, front, reference)


def _improvement(
    mean: Floats, deviation: Floats, front: Floats, reference: Floats
) -> Floats:
    last = mean[:, -1], deviation[:, -1]
    if mean.shape[1] == 1:
        return _below(min(front[:, 0].min(initial=np.inf), reference[0]), *last)
    front = front[np.argsort(front[:, -1], kind="stable")]
    ends = [*front[:, -1], reference[-1]]
    before, total = np.zeros(len(mean)), np.zeros(len(mean))
    for count, end in enumerate(ends):
        below = _below(end, *last)
        inner = _improvement(
            mean[:, :-1], deviation[:, :-1], front[:count, :-1], reference[:-1]
        )
        total += (below - before) * inner
        before = below
    return total


def _below(end: float, mean: Floats, deviation: Floats) -> Floats:
    """Expectation [K] of max(0, end - y) for normal y."""
    gap = end - mean
    scaled = gap / deviation
    density = np.exp(-0.5 * scaled**2) / np.sqrt(2 * np.pi)
    return gap * ndtr(scaled) + deviation * density

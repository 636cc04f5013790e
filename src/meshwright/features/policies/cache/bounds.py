"""Bounds on what any policy can reach, for objects of unequal sizes."""

import numpy as np

from meshwright.features.policies.cache.trace import Trace


def least_misses(requests: Trace, capacity: int) -> tuple[int, int]:
    """The fewest misses, and the fewest missed bytes, that any policy could have.

    This is the bound PFOO-L (Berger et al., SIGMETRICS 2018): a hit needs the object's
    bytes in the cache from the request before it on, and all hits together have the
    cache's bytes times the length of the trace. Hits that need the least space and time
    for what they count are taken first. No policy need reach the bound.
    """
    following = requests.following()
    number = len(following)
    starts = np.flatnonzero((following < number) & (requests.sizes <= capacity))
    waits = following[starts] - starts
    sizes = requests.sizes[following[starts]]
    budget = capacity * number
    misses = number - _taken(waits * sizes, np.ones_like(sizes), budget)
    missed = int(requests.sizes.sum()) - _taken(waits * sizes, sizes, budget)
    return misses, missed


def _taken(needs: np.ndarray, worths: np.ndarray, budget: int) -> int:
    """The sum of the worths of the cheapest hits, with the first one too many."""
    order = np.argsort(needs / worths, kind="stable")
    spent = np.cumsum(needs[order])
    count = int(np.searchsorted(spent, budget, "right"))
    return int(worths[order][: count + 1].sum())

"""Plans between the fastest and the smallest, where an objective counts memory.

Between two known plans no plan is faster than the larger one, nor smaller than the
smaller one. The objective's value at these two figures is thus a lower bound for the
interval between them; the interval of the lowest bound is bisected first.
"""

import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count

from meshwright.planner.solve.optimum import Optimum

_LOWEST = 0.1
"""Memory of the first smaller plan that is tried, relative to the known plan."""

_CLOSE = 0.97
"""Memory, relative to a known plan, above which a smaller plan is not looked for."""

_BETTER = 0.99
"""An interval is skipped if its lower bound is above this share of the best value."""


def frontier(
    first: Optimum,
    solve_within: Callable[[float, Optimum], Optimum],
    value_of: Callable[[float, float], float],
    is_over: Callable[[], bool],
) -> Iterator[Optimum]:
    """Plans that take less memory than `first`, each as soon as it is found.

    solve_within: the cheapest plan within so many bytes, or about the smallest if none
    fits; it starts from a known plan. value_of: the objective of seconds and bytes.
    """
    best = value_of(first.seconds, first.bytes)
    intervals: list[tuple[float, int, Optimum, float]] = []
    number = count()

    def add_interval(larger: Optimum, least: float) -> None:
        if least < _CLOSE * larger.bytes:
            bound = value_of(larger.seconds, least)
            heappush(intervals, (bound, next(number), larger, least))

    add_interval(first, 0.0)
    while intervals and intervals[0][0] < _BETTER * best and not is_over():
        _, _, larger, least = heappop(intervals)
        limit = math.sqrt(least * larger.bytes) or _LOWEST * larger.bytes
        found = solve_within(limit, larger)
        fits = found.bytes <= limit
        if found.bytes >= larger.bytes:
            add_interval(larger, limit)
            continue
        yield found
        best = min(best, value_of(found.seconds, found.bytes))
        add_interval(larger, limit if fits else found.bytes)
        add_interval(found, least if fits else limit)

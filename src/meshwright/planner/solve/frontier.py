"""Plans between the fastest and the smallest, for objectives that count memory.

No plan between two known plans is faster than the larger one or smaller than the
smaller one. So the objective at that time and that memory is a lower bound for the
interval between the two plans. The interval with the lowest bound is bisected first.
"""

import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count

from meshwright.planner.solve.optimum import Optimum

_LOWEST = 0.1
"""Memory limit of the first smaller plan to try, relative to a known plan's memory."""

_CLOSE = 0.97
"""Memory above which no smaller plan is searched for, relative to a known plan's."""

_BETTER = 0.99
"""An interval is skipped if its bound is above this share of the best objective."""


def frontier(
    first: Optimum,
    solve_within: Callable[[float, Optimum], Optimum],
    value_of: Callable[[float, float], float],
    is_over: Callable[[], bool],
) -> Iterator[Optimum]:
    """Plans that take less memory than `first`, each as soon as it is found.

    solve_within: returns the fastest plan within a number of bytes, or nearly the
        smallest plan if none fits; its second argument is a plan to start from.
    value_of: the objective as a function of seconds and bytes.
    is_over: whether to stop.
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

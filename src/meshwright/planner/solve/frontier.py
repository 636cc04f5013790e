"""Plans between the fastest and the smallest, as far as they may be better than both.

Between two that are known no plan is faster than the larger, nor smaller than the
smaller. What two such figures would be worth together is what the stretch between them
promises; those that promise most are halved first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count

from meshwright.planner.solve.optimum import Optimum

_LOWEST = 0.1
"""Of the memory of a plan that of a smaller one, where nothing is known of such."""

_CLOSE = 0.97
"""Of its memory above which a smaller plan is not worth looking for."""

_BETTER = 0.99
"""Of the best value so far above which none is."""


def frontier(
    first: Optimum,
    ask: Callable[[float, Optimum], Optimum],
    value_of: Callable[[float, float], float],
    is_over: Callable[[], bool],
) -> Iterator[Optimum]:
    """Plans that take less memory than `first`, each when it is found.

    ask: the cheapest plan within so many bytes, or about the smallest where none is, from
    one that is known. value_of: of seconds and bytes, what is to be small.
    """
    best = value_of(first.seconds, first.bytes)
    stretches: list[tuple[float, int, Optimum, float]] = []
    number = count()

    def note(larger: Optimum, least: float) -> None:
        if least < _CLOSE * larger.bytes:
            promise = value_of(larger.seconds, least)
            heappush(stretches, (promise, next(number), larger, least))

    note(first, 0.0)
    while stretches and stretches[0][0] < _BETTER * best and not is_over():
        _, _, larger, least = heappop(stretches)
        limit = math.sqrt(least * larger.bytes) or _LOWEST * larger.bytes
        found = ask(limit, larger)
        fits = found.bytes <= limit
        if found.bytes >= larger.bytes:
            note(larger, limit)
            continue
        yield found
        best = min(best, value_of(found.seconds, found.bytes))
        note(larger, limit if fits else found.bytes)
        note(found, least if fits else limit)

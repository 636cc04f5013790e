"""W-TinyLFU (Einziger et al., 2017): a window, and admission by estimated frequency."""

from typing import NamedTuple

import numpy as np

from meshwright.features.policies.cache.eviction.queues import (
    Queues,
    empty_queues,
    enter,
    last,
    leave,
    move,
)
from meshwright.search.compiled import compiled, compiled_in_place

_WINDOW_SHARE, _PROTECTED_SHARE = 0.01, 0.8
"""Shares of the window in the cache, and of the protected part in the rest."""

_ROWS, _MOST, _HALVED_AFTER = 4, 15, 10
"""Rows of the sketch, its greatest count, and the requests for each object that the cache
can hold after which all counts are halved."""

_WINDOW, _PROBATION, _PROTECTED = 1, 2, 3


@compiled
def tinylfu(
    ids: np.ndarray, sizes: np.ndarray, capacity: int, hits: np.ndarray
) -> None:
    """Fill in `hits` under W-TinyLFU.

    New objects enter the window. One that leaves it enters the main part in place of the
    objects that this part would evict next, if it was asked for more often than each of
    them, by a sketch of counts that ages. The main part has a queue of objects on
    probation, and a protected one for those that were asked for again.
    """
    queues = empty_queues(ids.max() + 1, 3)
    used = queues.used
    window = max(int(capacity * _WINDOW_SHARE), 1)
    main = capacity - window
    protected = int(main * _PROTECTED_SHARE)
    sketch = _empty_sketch(max(1, int(capacity / np.mean(sizes))))
    for t in range(len(ids)):
        each, size = ids[t], sizes[t]
        _count(sketch, each)
        place = queues.place[each]
        if place:
            hits[t] = True
            move(queues, each, _WINDOW if place == _WINDOW else _PROTECTED)
            while used[_PROTECTED] > protected:
                move(queues, last(queues, _PROTECTED), _PROBATION)
            continue
        if size > capacity:
            continue
        queues.stored[each] = size
        enter(queues, each, _WINDOW)
        while used[_WINDOW] > window:
            candidate = last(queues, _WINDOW)
            leave(queues, candidate)
            _admit(queues, sketch, candidate, main)


class _Sketch(NamedTuple):
    """Estimated numbers of requests by object.

    counts: one row of counts for each way to place an object.
    clock: number of requests since the counts were halved, and after how many they are.
    """

    counts: np.ndarray
    clock: np.ndarray


@compiled
def _empty_sketch(objects: int) -> _Sketch:
    """A sketch that has seen no request, for a cache of so many objects."""
    width = 16
    while width < objects:
        width *= 2
    clock = np.array([0, _HALVED_AFTER * objects], np.int64)
    return _Sketch(np.zeros((_ROWS, width), np.uint8), clock)


@compiled_in_place
def _column(each: int, row: int, width: int) -> int:
    """The column in which a row of the sketch counts an object: a hash of both."""
    mixed = np.uint64(each + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64(row + 1) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return int(mixed & np.uint64(width - 1))


@compiled_in_place
def _frequency(sketch: _Sketch, each: int) -> int:
    """About how often an object was asked for, lately: never too low a number."""
    least = _MOST
    for row in range(_ROWS):
        count = sketch.counts[row, _column(each, row, sketch.counts.shape[1])]
        least = min(least, int(count))
    return least


@compiled
def _count(sketch: _Sketch, each: int) -> None:
    """Count a request in the least of the object's counts, and halve all when due."""
    least = _frequency(sketch, each)
    for row in range(_ROWS):
        column = _column(each, row, sketch.counts.shape[1])
        if sketch.counts[row, column] == least and least < _MOST:
            sketch.counts[row, column] += 1
    sketch.clock[0] += 1
    if sketch.clock[0] >= sketch.clock[1]:
        sketch.clock[0] //= 2
        sketch.counts[:] = sketch.counts // 2


@compiled_in_place
def _admit(queues: Queues, sketch: _Sketch, candidate: int, main: int) -> None:
    """Let an object into the main part if it is worth more than what it displaces."""
    used, size = queues.used, queues.stored[candidate]
    if size > main:
        return
    frequency = _frequency(sketch, candidate)
    while used[_PROBATION] + used[_PROTECTED] + size > main:
        victim = last(queues, _PROBATION if used[_PROBATION] else _PROTECTED)
        if _frequency(sketch, victim) >= frequency:
            return
        leave(queues, victim)
    enter(queues, candidate, _PROBATION)

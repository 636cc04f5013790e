"""Rules with a small queue for new objects and memories of evicted ones: S3-FIFO and 2Q.

New objects enter the small queue. An object that leaves it unused is remembered, without
its bytes, in a queue of ghosts; one that is asked for while it is a ghost enters the main
queue at once. An object that is larger than the small queue is not stored.
"""

from typing import NamedTuple

import numpy as np

from meshwright.features.policies.cache.eviction.queues import (
    Queues,
    empty_queues,
    enter,
    last,
    leave,
    move,
    note_evicted,
)
from meshwright.search.compiled import compiled, compiled_in_place

_SMALL_SHARE, _GHOST_SHARE, _USES_FOR_MAIN, _MOST_USES = 0.1, 0.9, 2, 3
"""S3-FIFO's shares of the small queue and of the ghosts, the number of hits in the small
queue that move an object to the main queue, and the most hits that count there."""

_IN_SHARE, _OUT_SHARE = 0.25, 0.5
"""2Q's shares of the queue for new objects and of the ghosts."""

_SMALL, _MAIN, _GHOST = 1, 2, 3


class S3Fifo(NamedTuple):
    """The state of S3-FIFO: three queues, the uses that count, whether it is full."""

    queues: Queues
    uses: np.ndarray
    has_evicted: np.ndarray


@compiled
def empty_s3fifo(objects: int) -> S3Fifo:
    """A cache without objects."""
    uses = np.zeros(objects, np.int64)
    return S3Fifo(empty_queues(objects, 3), uses, np.zeros(1, np.bool_))


def s3fifo(ids: np.ndarray, sizes: np.ndarray, capacity: int, hits: np.ndarray) -> None:
    """Fill in `hits` under S3-FIFO (Yang et al., SOSP 2023): three FIFO queues."""
    _run(empty_s3fifo(ids.max() + 1), ids, sizes, capacity, hits)


@compiled_in_place
def _run(
    state: S3Fifo, ids: np.ndarray, sizes: np.ndarray, capacity: int, hits: np.ndarray
) -> None:
    """Fill in `hits` under S3-FIFO."""
    for t in range(len(ids)):
        hits[t] = request_s3fifo(state, ids[t], sizes[t], capacity)


@compiled_in_place
def request_s3fifo(state: S3Fifo, each: int, size: int, capacity: int) -> bool:
    """Whether a request is a hit, after the cache has changed as S3-FIFO says.

    An object at the end of the main queue that was asked for moves to its front, and loses
    one of the hits that count. Until the first eviction, objects for which the small queue
    has no room enter the main queue, as in libCacheSim.
    """
    queues, uses = state.queues, state.uses
    small_size = int(capacity * _SMALL_SHARE)
    ghost_size = int(capacity * _GHOST_SHARE)
    place = queues.place[each]
    queues.gone[-1] = 0
    if place in (_SMALL, _MAIN):
        uses[each] += 1
        return True
    if place == _GHOST:
        leave(queues, each)
    if size > small_size:
        return False
    while queues.used[_SMALL] + queues.used[_MAIN] + size > capacity:
        state.has_evicted[0] = True
        if queues.used[_MAIN] > capacity - small_size or not queues.used[_SMALL]:
            _evict_main(queues, uses)
        else:
            _evict_small(queues, uses, ghost_size)
    if place == _GHOST or size < small_size:
        queues.stored[each], uses[each] = size, 0
        is_full = not state.has_evicted[0] and queues.used[_SMALL] >= small_size
        enter(queues, each, _MAIN if place == _GHOST or is_full else _SMALL)
    return False


@compiled_in_place
def forget_s3fifo(state: S3Fifo, each: int) -> None:
    """Take an object out, if it is in the cache or a ghost."""
    if state.queues.place[each]:
        leave(state.queues, each)


@compiled
def two_queues(
    ids: np.ndarray, sizes: np.ndarray, capacity: int, hits: np.ndarray
) -> None:
    """Fill in `hits` under 2Q (Johnson and Shasha, VLDB 1994), whose main queue is LRU."""
    queues = empty_queues(ids.max() + 1, 3)
    in_size, out_size = int(capacity * _IN_SHARE), int(capacity * _OUT_SHARE)
    for t in range(len(ids)):
        each, size = ids[t], sizes[t]
        place = queues.place[each]
        if place in (_SMALL, _MAIN):
            hits[t] = True
            if place == _MAIN:
                move(queues, each, _MAIN)
            continue
        if place == _GHOST:
            leave(queues, each)
        if size > in_size:
            continue
        while queues.used[_SMALL] + queues.used[_MAIN] + size > capacity:
            if queues.used[_SMALL] > in_size or not queues.used[_MAIN]:
                victim = last(queues, _SMALL)
                leave(queues, victim)
                _remember(queues, victim, out_size)
            else:
                leave(queues, last(queues, _MAIN))
        if place == _GHOST:
            while queues.used[_MAIN] + size > capacity - in_size:
                leave(queues, last(queues, _MAIN))
        queues.stored[each] = size
        enter(queues, each, _MAIN if place == _GHOST else _SMALL)


@compiled_in_place
def _remember(queues: Queues, each: int, ghost_size: int) -> None:
    """Make an evicted object a ghost, for which the oldest ghosts make room."""
    if queues.stored[each] > ghost_size:
        return
    while queues.used[_GHOST] + queues.stored[each] > ghost_size:
        leave(queues, last(queues, _GHOST))
    enter(queues, each, _GHOST)


@compiled_in_place
def _evict_small(queues: Queues, uses: np.ndarray, ghost_size: int) -> None:
    """Evict an object of the small queue; those that were asked for often move on."""
    while queues.used[_SMALL] > 0:
        each = last(queues, _SMALL)
        leave(queues, each)
        if uses[each] < _USES_FOR_MAIN:
            note_evicted(queues.gone, each)
            _remember(queues, each, ghost_size)
            return
        uses[each] = 0
        enter(queues, each, _MAIN)


@compiled_in_place
def _evict_main(queues: Queues, uses: np.ndarray) -> None:
    """Evict an object of the main queue that was not asked for since its last turn."""
    while queues.used[_MAIN] > 0:
        each = last(queues, _MAIN)
        leave(queues, each)
        if uses[each] == 0:
            note_evicted(queues.gone, each)
            return
        uses[each] = min(uses[each], _MOST_USES) - 1
        enter(queues, each, _MAIN)

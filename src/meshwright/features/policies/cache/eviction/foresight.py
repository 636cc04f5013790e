"""Foresight, a policy of our own: it follows the best of several caches; one learns.

SIEVE, S3-FIFO, LFUDA and a cache that learns (`learned.py`) run on all requests without
their objects' bytes. The cache itself does what the one with the fewest missed bytes of
late would have it do: it evicts objects that this leader does not have. So where learning
does not pay, it is the best heuristic, also when that changes with time.
"""

from typing import NamedTuple

import numpy as np

from meshwright.features.policies.cache.eviction.learned import (
    Learned,
    empty_learned,
    forget_learned,
    request_learned,
)
from meshwright.features.policies.cache.eviction.learning.histories import TAGS
from meshwright.features.policies.cache.eviction.one_queue import (
    SIEVE,
    OneQueue,
    empty_queue,
    forget_one_queue,
    request_one_queue,
)
from meshwright.features.policies.cache.eviction.probation import (
    S3Fifo,
    empty_s3fifo,
    forget_s3fifo,
    request_s3fifo,
)
from meshwright.features.policies.cache.eviction.queues import (
    Queues,
    empty_queues,
    enter,
    evict,
    last,
    leave,
    move,
)
from meshwright.features.policies.cache.eviction.ranked import (
    LFUDA,
    Ranked,
    empty_ranked,
    forget_ranked,
    request_ranked,
)
from meshwright.search.compiled import compiled, compiled_in_place

_SIEVE, _S3FIFO, _LFUDA, _LEARNED = range(4)

_FOLLOWED, _STRAY = 1, 2
"""Queues of the objects that the leader has, too, and of those that it does not have."""

_MEMORY, _LEAST_MEMORY = 4, 4000
"""Missed bytes count less by a factor of e after so many requests for each object in the
cache, and at least after so many."""

_EVERY, _BETTER = 128, 0.975
"""The leader is chosen again after so many requests; another one has to miss fewer bytes
than this share of the leader's."""


class Foresight(NamedTuple):
    """The state of the cache.

    queues: the objects in the cache itself.
    missed: recently missed bytes of each cache, one in each place.
    leader: the cache that is followed.
    objects: number of objects in the cache.
    """

    sieve: OneQueue
    s3fifo: S3Fifo
    lfuda: Ranked
    learned: Learned
    queues: Queues
    missed: np.ndarray
    leader: np.ndarray
    objects: np.ndarray


@compiled
def empty_foresight(objects: int, seed: int) -> Foresight:
    """A cache without objects, which follows S3-FIFO."""
    return Foresight(
        empty_queue(objects),
        empty_s3fifo(objects),
        empty_ranked(objects),
        empty_learned(objects, seed),
        empty_queues(objects, 2),
        np.zeros(4, np.float64),
        np.full(1, _S3FIFO, np.int64),
        np.zeros(1, np.int64),
    )


def foresight(
    ids: np.ndarray,
    sizes: np.ndarray,
    tags: np.ndarray,
    capacity: int,
    hits: np.ndarray,
    seed: int,
) -> None:
    """Fill in `hits` under Foresight; tags are features, as `tag_features` makes them."""
    _run(empty_foresight(ids.max() + 1, seed), ids, sizes, tags, capacity, hits)


@compiled_in_place
def _run(
    state: Foresight,
    ids: np.ndarray,
    sizes: np.ndarray,
    tags: np.ndarray,
    capacity: int,
    hits: np.ndarray,
) -> None:
    """Fill in `hits` under Foresight."""
    for t in range(len(ids)):
        for k in range(TAGS):
            state.learned.known.tags[ids[t], k] = tags[t, k]
        hits[t] = request_foresight(state, ids[t], sizes[t], capacity, t + 1)


@compiled_in_place
def request_foresight(
    state: Foresight, each: int, size: int, capacity: int, now: int
) -> bool:
    """Whether the request `now`, from 1 on, is a hit, after the cache has changed."""
    queues = state.queues
    queues.gone[-1] = 0
    _ask_all(state, each, size, capacity, now)
    _release(state)
    hit = queues.place[each] > 0
    if hit:
        if _leader_has(state, each):
            move(queues, each, _FOLLOWED)
    elif size <= capacity:
        while queues.used[_STRAY] + queues.used[_FOLLOWED] + size > capacity:
            stray = queues.used[_STRAY] > 0
            evict(queues, last(queues, _STRAY if stray else _FOLLOWED))
            state.objects[0] -= 1
        queues.stored[each] = size
        state.objects[0] += 1
        enter(queues, each, _FOLLOWED if _leader_has(state, each) else _STRAY)
    if now % _EVERY == 0:
        _choose_leader(state)
    return hit


@compiled_in_place
def _ask_all(state: Foresight, each: int, size: int, capacity: int, now: int) -> None:
    """Give the request to all caches, and count what each of them misses."""
    missed = state.missed
    left = 1 - 1 / max(_MEMORY * state.objects[0], _LEAST_MEMORY)
    for k in range(len(missed)):
        missed[k] *= left
    if not request_one_queue(state.sieve, each, size, capacity, SIEVE):
        missed[_SIEVE] += size
    if not request_s3fifo(state.s3fifo, each, size, capacity):
        missed[_S3FIFO] += size
    if not request_ranked(state.lfuda, each, size, capacity, LFUDA, now, now):
        missed[_LFUDA] += size
    if not request_learned(state.learned, each, size, capacity, now):
        missed[_LEARNED] += size


@compiled_in_place
def _release(state: Foresight) -> None:
    """Make strays of the objects that the leader has just evicted."""
    leader = state.leader[0]
    if leader == _SIEVE:
        _stray(state.queues, state.sieve.queues.gone)
    elif leader == _S3FIFO:
        _stray(state.queues, state.s3fifo.queues.gone)
    elif leader == _LFUDA:
        _stray(state.queues, state.lfuda.gone)
    else:
        _stray(state.queues, state.learned.gone)


@compiled_in_place
def _stray(queues: Queues, gone: np.ndarray) -> None:
    """Make strays of some objects, if they are in the cache."""
    for k in range(gone[-1]):
        if queues.place[gone[k]]:
            move(queues, int(gone[k]), _STRAY)


@compiled_in_place
def _leader_has(state: Foresight, each: int) -> bool:
    """Whether the leader has an object in its cache."""
    leader = state.leader[0]
    if leader == _SIEVE:
        return state.sieve.queues.place[each] > 0
    if leader == _S3FIFO:
        return 0 < state.s3fifo.queues.place[each] < 3
    if leader == _LFUDA:
        return state.lfuda.heap.at[each] >= 0
    return state.learned.members.at[each] >= 0


@compiled_in_place
def _choose_leader(state: Foresight) -> None:
    """Follow another cache if it missed clearly fewer bytes of late."""
    missed, best = state.missed, 0
    for k in range(1, len(missed)):
        if missed[k] < missed[best]:
            best = k
    if missed[best] >= _BETTER * missed[state.leader[0]]:
        return
    state.leader[0] = best
    _sort_queue(state, _FOLLOWED)
    _sort_queue(state, _STRAY)


@compiled_in_place
def _sort_queue(state: Foresight, where: int) -> None:
    """Move the objects of a queue that belong into the other one, oldest first."""
    queues = state.queues
    objects = len(queues.place)
    each = queues.before[objects + where]
    while each < objects:
        following = queues.before[each]
        belongs = _FOLLOWED if _leader_has(state, int(each)) else _STRAY
        if belongs != where:
            move(queues, int(each), belongs)
        each = following


@compiled_in_place
def forget_foresight(state: Foresight, each: int) -> None:
    """Take an object out of all caches, and what is known of it."""
    forget_one_queue(state.sieve, each)
    forget_s3fifo(state.s3fifo, each)
    forget_ranked(state.lfuda, each)
    forget_learned(state.learned, each)
    if state.queues.place[each]:
        leave(state.queues, each)
        state.objects[0] -= 1

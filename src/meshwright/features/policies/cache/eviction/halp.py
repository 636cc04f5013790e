"""HALP (Song et al., NSDI 2023): LRU proposes objects to evict, a small network chooses.

At each eviction, the last four objects of an LRU queue are compared, and the one that the
network expects to be asked for last is evicted. The others return to the front, which is
our choice: at the end, they would be compared again at once. The comparison of two objects
waits until one of them is asked for again; then it is known which of the two was the better
one to evict, and the network learns from it. It begins with random weights and learns on
the way. What is known of an object is kept after its eviction, for comparisons and for its
return.
"""

from typing import NamedTuple

import numpy as np

from meshwright.features.policies.cache.eviction.learning.histories import (
    FEATURES,
    TAGS,
    History,
    describe,
    forget_history,
    no_history,
    record,
)
from meshwright.features.policies.cache.eviction.learning.pair_network import (
    PairNetwork,
    learn,
    random_network,
    score,
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
from meshwright.search.compiled import compiled, compiled_in_place

_CANDIDATES = 4

_PENDING = 1 << 15
"""Comparisons that wait for their answer; the oldest are dropped."""


class _Pending(NamedTuple):
    """Comparisons without an answer, in a ring.

    objects: the two objects of each; -1 in an empty place.
    is_open: whether none of the two was asked for since.
    features: those of both at the time of the comparison.
    newest: the last comparison of each object; -1 for none.
    older: the comparison before that, for each of a comparison's two objects.
    made: number of comparisons so far.
    """

    objects: np.ndarray
    is_open: np.ndarray
    features: np.ndarray
    newest: np.ndarray
    older: np.ndarray
    made: np.ndarray


class Halp(NamedTuple):
    """The state of HALP; `tail`, `features` and `scores` are of the objects compared."""

    queues: Queues
    known: History
    network: PairNetwork
    pending: _Pending
    tail: np.ndarray
    features: np.ndarray
    scores: np.ndarray


@compiled
def empty_halp(objects: int, seed: int) -> Halp:
    """A cache without objects, and a network whose first weights are those of a seed."""
    return Halp(
        empty_queues(objects, 1),
        no_history(objects),
        random_network(_CANDIDATES, seed),
        _no_pending(objects),
        np.zeros(_CANDIDATES, np.int32),
        np.zeros((_CANDIDATES, FEATURES), np.uint8),
        np.zeros(_CANDIDATES, np.float64),
    )


def halp(
    ids: np.ndarray,
    sizes: np.ndarray,
    tags: np.ndarray,
    capacity: int,
    hits: np.ndarray,
    seed: int,
) -> None:
    """Fill in `hits` under HALP; tags are features, as `tag_features` makes them."""
    _run(empty_halp(ids.max() + 1, seed), ids, sizes, tags, capacity, hits)


@compiled_in_place
def _run(
    state: Halp,
    ids: np.ndarray,
    sizes: np.ndarray,
    tags: np.ndarray,
    capacity: int,
    hits: np.ndarray,
) -> None:
    """Fill in `hits` under HALP."""
    for t in range(len(ids)):
        for k in range(TAGS):
            state.known.tags[ids[t], k] = tags[t, k]
        hits[t] = request_halp(state, ids[t], sizes[t], capacity, t + 1)


@compiled_in_place
def request_halp(state: Halp, each: int, size: int, capacity: int, now: int) -> bool:
    """Whether the request `now`, from 1 on, is a hit, after the cache has changed."""
    queues = state.queues
    queues.gone[-1] = 0
    _answer(state.pending, state.network, each)
    record(state.known, each, now)
    if queues.place[each]:
        move(queues, each, 1)
        return True
    if size > capacity:
        return False
    while queues.used[1] + size > capacity:
        evict(queues, _choose(state, now))
    queues.stored[each] = size
    enter(queues, each, 1)
    return False


@compiled_in_place
def _choose(state: Halp, now: int) -> int:
    """The object to evict; the others that were compared return to the front."""
    queues, tail, pending = state.queues, state.tail, state.pending
    count = _last_objects(queues, tail)
    for k in range(count):
        each = int(tail[k])
        describe(state.known, each, queues.stored[each], now, state.features[k])
    score(state.network, state.features, state.scores)
    best = 0
    for k in range(1, count):
        if state.scores[k] > state.scores[best]:
            best = k
    if count > 1:
        other = (best + 1 + (pending.made[0] * 7919) % (count - 1)) % count
        _wait(pending, tail, state.features, best, other)
    for k in range(count):
        if k != best:
            move(queues, int(tail[k]), 1)
    return int(tail[best])


@compiled_in_place
def _last_objects(queues: Queues, tail: np.ndarray) -> int:
    """Write the last objects of the queue to `tail`; returns their number."""
    count, each = 0, last(queues, 1)
    while count < len(tail) and each < len(queues.place):
        tail[count] = each
        each = queues.before[each]
        count += 1
    return count


@compiled
def _no_pending(objects: int) -> _Pending:
    """A ring without comparisons."""
    return _Pending(
        np.full((_PENDING, 2), -1, np.int32),
        np.zeros(_PENDING, np.bool_),
        np.zeros((_PENDING, 2, FEATURES), np.uint8),
        np.full(objects, -1, np.int64),
        np.full((_PENDING, 2), -1, np.int64),
        np.zeros(1, np.int64),
    )


@compiled_in_place
def _wait(
    pending: _Pending, tail: np.ndarray, features: np.ndarray, one: int, other: int
) -> None:
    """Keep the comparison of two objects, in place of the oldest one."""
    number = pending.made[0]
    at = number % _PENDING
    pending.is_open[at] = True
    for side in range(2):
        place = one if side == 0 else other
        each = tail[place]
        pending.objects[at, side] = each
        for k in range(FEATURES):
            pending.features[at, side, k] = features[place, k]
        pending.older[at, side] = pending.newest[each]
        pending.newest[each] = number
    pending.made[0] += 1


@compiled_in_place
def _answer(pending: _Pending, network: PairNetwork, each: int) -> None:
    """Learn from the comparisons of an object that is asked for: the other was better."""
    number = pending.newest[each]
    pending.newest[each] = -1
    while number >= 0 and number > pending.made[0] - _PENDING:
        at = number % _PENDING
        side = 0 if pending.objects[at, 0] == each else 1
        if pending.objects[at, side] != each:
            return
        if pending.is_open[at]:
            pending.is_open[at] = False
            learn(network, pending.features[at, 1 - side], pending.features[at, side])
        number = pending.older[at, side]


@compiled_in_place
def forget_halp(state: Halp, each: int) -> None:
    """Take an object out, if it is in the cache, and what is known of it."""
    if state.queues.place[each]:
        leave(state.queues, each)
    forget_history(state.known, each)
    state.pending.newest[each] = -1

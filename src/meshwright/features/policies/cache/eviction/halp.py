"""HALP (Song et al., NSDI 2023): LRU proposes objects to evict, a small network chooses.

At each eviction, the last four objects of an LRU queue are compared, and the one that the
network expects to be asked for last is evicted. The others return to the front, which is
our choice: at the end, they would be compared again at once. The comparison of two objects
waits until one of them is asked for again; then it is known which of the two was the better
one to evict, and the network learns from it. It begins with random weights and learns on
the way. What is known of an object is kept after its eviction, for comparisons and for its
return.
"""

import math
from typing import NamedTuple

import numpy as np

from meshwright.features.policies.cache.eviction.pair_network import (
    PairNetwork,
    learn,
    random_network,
    score,
)
from meshwright.features.policies.cache.eviction.queues import (
    Queues,
    empty_queues,
    enter,
    last,
    leave,
    move,
)
from meshwright.search.compiled import compiled

_CANDIDATES = 4

_GAPS, _DECAYS, _OTHERS = 8, 6, 4
"""Features of an object: the last times between its requests, decaying counts of its
requests, and its number of requests, their mean distance, the time since the last one and
the size."""

FEATURES = _GAPS + _DECAYS + _OTHERS

_PENDING = 1 << 15
"""Comparisons that wait for their answer; the oldest are dropped."""

_FIRST_HALF_LIFE = 8
"""The decaying counts halve every 2^8, 2^10, ... requests."""

_NEVER = 40.0
"""The logarithm that stands for a time between requests that did not take place."""


class _History(NamedTuple):
    """What is known of each object.

    asked: number of the last request, counted from 1; 0 for none.
    requests: number of requests.
    mean: mean distance of the requests.
    gaps: logarithms of the last distances in eighths, the newest first.
    decays: counts that halve after longer and longer times, as of the last request.
    """

    asked: np.ndarray
    requests: np.ndarray
    mean: np.ndarray
    gaps: np.ndarray
    decays: np.ndarray


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


@compiled
def halp(
    ids: np.ndarray, sizes: np.ndarray, capacity: int, hits: np.ndarray, seed: int
) -> None:
    """Fill in `hits` under HALP, with a network whose first weights are those of a seed."""
    objects = ids.max() + 1
    queues = empty_queues(objects, 1)
    known = _no_history(objects)
    network = random_network(FEATURES, seed)
    pending = _no_pending(objects)
    tail = np.zeros(_CANDIDATES, np.int32)
    features = np.zeros((_CANDIDATES, FEATURES), np.float32)
    for t in range(len(ids)):
        each, size = ids[t], sizes[t]
        _answer(pending, network, each)
        _record(known, each, t + 1)
        if queues.place[each]:
            hits[t] = True
            move(queues, each, 1)
            continue
        if size > capacity:
            continue
        while queues.used[1] + size > capacity:
            count = _last_objects(queues, tail)
            best, greatest = 0, -np.inf
            for k in range(count):
                _describe(known, int(tail[k]), queues, t + 1, features[k])
                value = score(network, features[k])
                if value > greatest:
                    best, greatest = k, value
            if count > 1:
                other = (best + 1 + (pending.made[0] * 7919) % (count - 1)) % count
                _wait(pending, tail, features, best, other)
            for k in range(count):
                move(queues, int(tail[k]), 1)
            leave(queues, int(tail[best]))
        queues.stored[each] = size
        enter(queues, each, 1)


@compiled
def _last_objects(queues: Queues, tail: np.ndarray) -> int:
    """Write the last objects of the queue to `tail`; returns their number."""
    count, each = 0, last(queues, 1)
    while count < len(tail) and each < len(queues.place):
        tail[count] = each
        each = queues.before[each]
        count += 1
    return count


@compiled
def _no_history(objects: int) -> _History:
    """Nothing is known of any object."""
    return _History(
        np.zeros(objects, np.int64),
        np.zeros(objects, np.int32),
        np.zeros(objects, np.float32),
        np.full((objects, _GAPS), np.uint8(255), np.uint8),
        np.zeros((objects, _DECAYS), np.float32),
    )


@compiled
def _record(known: _History, each: int, now: int) -> None:
    """Remember a request for an object."""
    if known.asked[each]:
        gap = now - known.asked[each]
        for k in range(_GAPS - 1, 0, -1):
            known.gaps[each, k] = known.gaps[each, k - 1]
        known.gaps[each, 0] = min(254, int(8 * math.log2(gap)))
        known.mean[each] += (gap - known.mean[each]) / known.requests[each]
        for k in range(_DECAYS):
            known.decays[each, k] *= 2.0 ** (-gap / 2.0 ** (_FIRST_HALF_LIFE + 2 * k))
    known.asked[each] = now
    known.requests[each] += 1
    for k in range(_DECAYS):
        known.decays[each, k] += 1


@compiled
def _describe(
    known: _History, each: int, queues: Queues, now: int, features: np.ndarray
) -> None:
    """Write the features of an object at a time, each about as large as 1."""
    for k in range(_GAPS):
        code = known.gaps[each, k]
        features[k] = (_NEVER if code == 255 else code / 8) / 20
    age = now - known.asked[each]
    for k in range(_DECAYS):
        half_life = 2.0 ** (_FIRST_HALF_LIFE + 2 * k)
        decayed = known.decays[each, k] * 2.0 ** (-age / half_life)
        features[_GAPS + k] = math.log2(1 + decayed) / 4
    at = _GAPS + _DECAYS
    features[at] = math.log2(known.requests[each]) / 8
    mean = known.mean[each]
    features[at + 1] = (math.log2(mean) if mean > 0 else _NEVER) / 20
    features[at + 2] = math.log2(1 + age) / 20
    features[at + 3] = math.log2(queues.stored[each]) / 20


@compiled
def _no_pending(objects: int) -> _Pending:
    """A ring without comparisons."""
    return _Pending(
        np.full((_PENDING, 2), -1, np.int32),
        np.zeros(_PENDING, np.bool_),
        np.zeros((_PENDING, 2, FEATURES), np.float32),
        np.full(objects, -1, np.int64),
        np.full((_PENDING, 2), -1, np.int64),
        np.zeros(1, np.int64),
    )


@compiled
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
        pending.features[at, side] = features[place]
        pending.older[at, side] = pending.newest[each]
        pending.newest[each] = number
    pending.made[0] += 1


@compiled
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

"""LRB (Song et al., NSDI 2020) and 3L-Cache (Zhou et al., FAST 2025): boosted trees.

Both expect the logarithm of the time to an object's next request by boosted trees that are
fitted again and again to labelled examples (`lessons.py`); before, they are LRU.

- LRB draws 64 objects at each eviction and evicts the one with the latest next request. An
  object without a request for the whole memory window goes first.
- 3L-Cache spares predictions: it evicts the latest half of the objects that it compared
  before it compares others; half of these are the oldest, half are drawn.
"""

from typing import NamedTuple

import numpy as np

from meshwright.features.policies.cache.eviction.learning.histories import (
    FEATURES,
    History,
    describe,
    no_history,
    record,
)
from meshwright.features.policies.cache.eviction.learning.lessons import (
    Lessons,
    asked_again,
    look_at,
    no_lessons,
)
from meshwright.features.policies.cache.eviction.learning.members import (
    Members,
    draw,
    drop,
    no_members,
    put,
)
from meshwright.features.policies.cache.eviction.queues import (
    Queues,
    empty_queues,
    enter,
    last,
    leave,
    move,
)
from meshwright.features.policies.trees.boosted_trees import (
    Forest,
    fit,
    no_forest,
    predict,
)
from meshwright.search.compiled import compiled, compiled_in_place

LRB, THREE_L = range(2)

_CANDIDATES, _TREES, _EXAMPLES, _WAITING = 64, 32, 1 << 15, 1 << 18
"""Objects that are compared, trees, examples of a fit, and examples without a label. LRB's
authors fit to four times as many examples, and so begin later."""

_WINDOW = 8
"""The memory window: lives of an object in the cache. LRB's authors search for it."""


class Lrb(NamedTuple):
    """The state of both rules.

    queues: the objects in the order of their last requests.
    batch: objects to evict, the latest last, with their values and requests so far; the
        first item of `left` is their number.
    left: also the numbers of evictions and of labels at the last fit.
    """

    members: Members
    queues: Queues
    known: History
    lessons: Lessons
    forest: Forest
    batch: np.ndarray
    values: np.ndarray
    left: np.ndarray
    codes: np.ndarray


@compiled
def _empty_lrb(objects: int, seed: int) -> Lrb:
    """A cache without objects."""
    return Lrb(
        no_members(objects, seed),
        empty_queues(objects, 1),
        no_history(objects),
        no_lessons(objects, _WAITING, _EXAMPLES),
        no_forest(_TREES, FEATURES, _EXAMPLES),
        np.zeros((_CANDIDATES, 2), np.int64),
        np.zeros(_CANDIDATES, np.float32),
        np.zeros(3, np.int64),
        np.zeros(FEATURES, np.uint8),
    )


def lrb(
    ids: np.ndarray,
    sizes: np.ndarray,
    capacity: int,
    hits: np.ndarray,
    seed: int,
    rule: int,
) -> None:
    """Fill in `hits` under LRB or 3L-Cache."""
    _run(_empty_lrb(ids.max() + 1, seed), ids, sizes, capacity, hits, rule)


@compiled_in_place
def _run(
    state: Lrb,
    ids: np.ndarray,
    sizes: np.ndarray,
    capacity: int,
    hits: np.ndarray,
    rule: int,
) -> None:
    """Fill in `hits` under one of the two rules."""
    members, known, queues = state.members, state.known, state.queues
    for t in range(len(ids)):
        each, size, now = ids[t], sizes[t], t + 1
        life = now * members.totals[0] // max(state.left[1], 1)
        window = max(_WINDOW * life, 1 << 16)
        asked_again(state.lessons, each, now)
        record(known, each, now)
        if members.totals[0]:
            other = draw(members)
            stored = members.stored[other]
            look_at(state.lessons, known, other, stored, now, window)
        if state.lessons.totals[2] - state.left[2] >= _EXAMPLES:
            _learn(state)
        if members.at[each] >= 0:
            hits[t] = True
            move(queues, each, 1)
            continue
        if size > capacity:
            continue
        while members.totals[1] + size > capacity:
            victim = _choose(state, now, window, rule)
            drop(members, victim)
            leave(queues, victim)
            state.left[1] += 1
        put(members, each, size)
        enter(queues, each, 1)


@compiled_in_place
def _learn(state: Lrb) -> None:
    """Fit the trees to the labelled examples."""
    state.left[2] = state.lessons.totals[2]
    for i in range(_EXAMPLES):
        state.forest.targets[i] = state.lessons.labels[i]
    fit(state.forest, state.lessons.examples, _EXAMPLES)


@compiled_in_place
def _choose(state: Lrb, now: int, window: int, rule: int) -> int:
    """The object to evict."""
    members, known, left = state.members, state.known, state.left
    oldest = int(last(state.queues, 1))
    if not state.forest.fits[0] or now - known.asked[oldest] > window:
        return oldest
    while rule == THREE_L and left[0]:
        left[0] -= 1
        each, requests = state.batch[left[0], 0], state.batch[left[0], 1]
        if members.at[each] >= 0 and known.requests[each] == requests:
            return int(each)
    for k in range(_CANDIDATES):
        if rule == THREE_L and k % 2 and oldest < len(members.at):
            each, oldest = oldest, int(state.queues.before[oldest])
        else:
            each = draw(members)
        describe(known, each, members.stored[each], now, state.codes)
        _insert(state, k, each, predict(state.forest, state.codes))
    left[0] = _CANDIDATES - 1
    if rule == THREE_L:  # only the latest half is evicted before the next comparison
        half = _CANDIDATES // 2
        for k in range(half):
            state.batch[k, 0] = state.batch[k + half, 0]
            state.batch[k, 1] = state.batch[k + half, 1]
        left[0] = half - 1
    return int(state.batch[left[0], 0])


@compiled_in_place
def _insert(state: Lrb, count: int, each: int, value: float) -> None:
    """Add an object to the batch, which stays sorted by value."""
    values, batch = state.values, state.batch
    while count and values[count - 1] > value:
        values[count] = values[count - 1]
        batch[count, 0], batch[count, 1] = batch[count - 1, 0], batch[count - 1, 1]
        count -= 1
    values[count] = value
    batch[count, 0], batch[count, 1] = each, state.known.requests[each]

"""A cache that evicts what boosted trees expect to be of least use, learned on the way.

Examples of objects are labelled by their next request (`lessons.py`). The use of a place
in the cache is the rate of hits that it gives, 1 / (1 + time to the next request / life),
where the life of an object in the cache is measured. At an eviction, objects drawn at
random are compared; before the first trees, the one that was not asked for the longest is
evicted.
"""

from typing import NamedTuple

import numpy as np

from meshwright.features.policies.cache.eviction.learning.histories import (
    FEATURES,
    History,
    describe,
    forget_history,
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
    random_below,
)
from meshwright.features.policies.cache.eviction.queues import note_evicted
from meshwright.features.policies.trees.boosted_trees import (
    Forest,
    fit,
    no_forest,
    predict,
)
from meshwright.search.compiled import compiled, compiled_in_place

_TREES, _EXAMPLES, _WAITING = 20, 1 << 15, 1 << 18
"""Trees, labelled examples to fit them to, and examples that wait for their label."""

_FIRST_FIT, _LATER_FITS = 2000, 8192
"""New labels before the first fit, and before later ones; early ones come at each
doubling."""

_ONE_IN = 6
"""Of six requests, three become an example, and half as many times a member drawn."""

_CANDIDATES = 64

_WINDOW, _LEAST_WINDOW = 3, 10_000
"""Lives of an object in the cache after which its example counts as never asked for
again, and the least number of requests for that."""


class Learned(NamedTuple):
    """The state of the cache.

    next_fit: the number of labels at which the trees are fitted next.
    turns: numbers of requests and evictions so far.
    codes: the features of an object that is compared.
    gone: objects evicted by the present request; `gone[-1]` is their number.
    """

    members: Members
    known: History
    lessons: Lessons
    forest: Forest
    next_fit: np.ndarray
    turns: np.ndarray
    codes: np.ndarray
    gone: np.ndarray


@compiled
def empty_learned(objects: int, seed: int) -> Learned:
    """A cache without objects, which has learned nothing."""
    return Learned(
        no_members(objects, seed),
        no_history(objects),
        no_lessons(objects, _WAITING, _EXAMPLES),
        no_forest(_TREES, FEATURES, _EXAMPLES),
        np.full(1, _FIRST_FIT, np.int64),
        np.zeros(2, np.int64),
        np.zeros(FEATURES, np.uint8),
        np.zeros(objects + 1, np.int32),
    )


@compiled_in_place
def request_learned(
    state: Learned, each: int, size: int, capacity: int, now: int
) -> bool:
    """Whether the request `now`, from 1 on, is a hit, after the cache has changed."""
    members = state.members
    state.gone[-1] = 0
    state.turns[0] += 1
    asked_again(state.lessons, each, now)
    record(state.known, each, now)
    _study(state, each, size, now)
    if members.at[each] >= 0:
        return True
    if size > capacity:
        return False
    while members.totals[1] + size > capacity:
        victim = least_useful(state, now)
        drop(members, victim)
        note_evicted(state.gone, victim)
        state.turns[1] += 1
    put(members, each, size)
    return False


@compiled_in_place
def life(state: Learned) -> float:
    """Requests in which the cache evicts as many objects as it has."""
    return state.turns[0] / max(state.turns[1], 1) * state.members.totals[0]


@compiled_in_place
def _study(state: Learned, each: int, size: int, now: int) -> None:
    """Take examples, and fit the trees when there are enough new labels."""
    members, lessons, forest = state.members, state.lessons, state.forest
    window = max(int(_WINDOW * life(state)), _LEAST_WINDOW)
    if random_below(members, _ONE_IN) < 3:
        look_at(lessons, state.known, each, size, now, window)
    if members.totals[0] and random_below(members, 2 * _ONE_IN) < 3:
        other = draw(members)
        look_at(lessons, state.known, other, members.stored[other], now, window)
    labels = lessons.totals[2]
    if labels < state.next_fit[0] or not state.turns[1]:
        return
    number = min(labels, _EXAMPLES)
    scale = life(state)
    for i in range(number):
        forest.targets[i] = -1 / (1 + 2.0 ** lessons.labels[i] / scale)
    fit(forest, lessons.examples, number)
    state.next_fit[0] = labels + min(labels, _LATER_FITS)


@compiled_in_place
def least_useful(state: Learned, now: int) -> int:
    """The object that is expected to be of least use, among members drawn at random."""
    worst, greatest = -1, -np.inf
    for _ in range(_CANDIDATES):
        each = draw(state.members)
        if state.forest.fits[0]:
            describe(state.known, each, state.members.stored[each], now, state.codes)
            value = float(predict(state.forest, state.codes))
        else:
            value = float(now - state.known.asked[each])
        if value > greatest:
            worst, greatest = each, value
    return worst


@compiled_in_place
def forget_learned(state: Learned, each: int) -> None:
    """Take an object out, if it is in the cache, and what is known of it."""
    if state.members.at[each] >= 0:
        drop(state.members, each)
    forget_history(state.known, each)
    state.lessons.newest[each] = -1

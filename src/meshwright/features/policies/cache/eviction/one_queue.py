"""Rules that keep all objects in one queue: FIFO, LRU, CLOCK and SIEVE.

A new object enters at the front; the last object of the queue is evicted, with these
differences:

- LRU moves an object to the front when it is asked for.
- CLOCK marks an object that is asked for; a marked object at the end of the queue loses its
  mark and moves to the front.
- SIEVE (Zhang et al., NSDI 2024) marks it too, but moves nothing: a hand walks from the end
  to the front and around, takes marks away, and evicts the first object without one.
"""

from typing import NamedTuple

import numpy as np

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

FIFO, LRU, CLOCK, SIEVE = range(4)

_QUEUE = 1


class OneQueue(NamedTuple):
    """The state of a rule: a queue, the marked objects, and SIEVE's hand."""

    queues: Queues
    marked: np.ndarray
    hand: np.ndarray


@compiled
def empty_queue(objects: int) -> OneQueue:
    """A cache without objects."""
    hand = np.full(1, objects + _QUEUE, np.int64)
    return OneQueue(empty_queues(objects, 1), np.zeros(objects, np.bool_), hand)


def one_queue(
    ids: np.ndarray, sizes: np.ndarray, capacity: int, hits: np.ndarray, rule: int
) -> None:
    """Fill in `hits` under one of the four rules."""
    _run(empty_queue(ids.max() + 1), ids, sizes, capacity, hits, rule)


@compiled_in_place
def _run(
    state: OneQueue,
    ids: np.ndarray,
    sizes: np.ndarray,
    capacity: int,
    hits: np.ndarray,
    rule: int,
) -> None:
    """Fill in `hits` under one of the rules."""
    for t in range(len(ids)):
        hits[t] = request_one_queue(state, ids[t], sizes[t], capacity, rule)


@compiled_in_place
def request_one_queue(
    state: OneQueue, each: int, size: int, capacity: int, rule: int
) -> bool:
    """Whether a request is a hit, after the cache has changed as a rule says."""
    queues, marked = state.queues, state.marked
    queues.gone[-1] = 0
    if queues.place[each]:
        marked[each] = rule >= CLOCK
        if rule == LRU:
            move(queues, each, _QUEUE)
        return True
    if size > capacity:
        return False
    while queues.used[_QUEUE] + size > capacity:
        if rule == SIEVE:
            victim = _below_hand(queues, marked, state.hand[0])
            state.hand[0] = queues.before[victim]
        else:
            victim = _unmarked_last(queues, marked)
        evict(queues, victim)
    queues.stored[each] = size
    marked[each] = False
    enter(queues, each, _QUEUE)
    return False


@compiled_in_place
def _unmarked_last(queues: Queues, marked: np.ndarray) -> int:
    """The last object, after marked ones before it moved to the front without marks."""
    each = last(queues, _QUEUE)
    while marked[each]:
        marked[each] = False
        move(queues, each, _QUEUE)
        each = last(queues, _QUEUE)
    return each


@compiled_in_place
def _below_hand(queues: Queues, marked: np.ndarray, hand: int) -> int:
    """The first unmarked object from SIEVE's hand on; those before it lose their marks."""
    head = len(queues.place) + _QUEUE
    each = hand if hand != head else queues.before[head]
    while marked[each]:
        marked[each] = False
        each = queues.before[each]
        if each == head:
            each = queues.before[head]
    return each


@compiled_in_place
def forget_one_queue(state: OneQueue, each: int) -> None:
    """Take an object out, if it is in the cache."""
    if state.hand[0] == each:
        state.hand[0] = state.queues.before[each]
    if state.queues.place[each]:
        leave(state.queues, each)

"""Rules that keep all objects in one queue: FIFO, LRU, CLOCK and SIEVE.

A new object enters at the front; the last object of the queue is evicted, with these
differences:

- LRU moves an object to the front when it is asked for.
- CLOCK marks an object that is asked for; a marked object at the end of the queue loses its
  mark and moves to the front.
- SIEVE (Zhang et al., NSDI 2024) marks it too, but moves nothing: a hand walks from the end
  to the front and around, takes marks away, and evicts the first object without one.
"""

import numpy as np

from meshwright.features.policies.cache.eviction.queues import (
    Queues,
    empty_queues,
    enter,
    last,
    leave,
    move,
)
from meshwright.search.compiled import compiled

FIFO, LRU, CLOCK, SIEVE = range(4)

_QUEUE = 1


@compiled
def one_queue(
    ids: np.ndarray, sizes: np.ndarray, capacity: int, hits: np.ndarray, rule: int
) -> None:
    """Fill in `hits` under one of the four rules."""
    objects = ids.max() + 1
    queues = empty_queues(objects, 1)
    marked = np.zeros(objects, np.bool_)
    hand = objects + _QUEUE
    for t in range(len(ids)):
        each, size = ids[t], sizes[t]
        if queues.place[each]:
            hits[t] = True
            marked[each] = rule >= CLOCK
            if rule == LRU:
                move(queues, each, _QUEUE)
            continue
        if size > capacity:
            continue
        while queues.used[_QUEUE] + size > capacity:
            if rule == SIEVE:
                victim = _below_hand(queues, marked, hand)
                hand = queues.before[victim]
            else:
                victim = _unmarked_last(queues, marked)
            leave(queues, victim)
        queues.stored[each] = size
        marked[each] = False
        enter(queues, each, _QUEUE)


@compiled
def _unmarked_last(queues: Queues, marked: np.ndarray) -> int:
    """The last object, after marked ones before it moved to the front without marks."""
    each = last(queues, _QUEUE)
    while marked[each]:
        marked[each] = False
        move(queues, each, _QUEUE)
        each = last(queues, _QUEUE)
    return each


@compiled
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

"""Queues of objects that the eviction rules keep, as arrays with one item per object.

An object is in one queue at most. The queue number `k`, from 1 on, begins and ends at the
place `objects + k` of `before` and `after`, its head: `after[head]` is the first object of
the queue, `before[head]` the last one. An empty queue's head points at itself.
"""

from typing import NamedTuple

import numpy as np

from meshwright.search.compiled import compiled, compiled_in_place


class Queues(NamedTuple):
    """Doubly linked lists, the place of each object, and the bytes of each list.

    before, after: neighbours of each object in its queue, and of each head.
    place: number of the queue that an object is in; 0 for none.
    stored: bytes of each object, as of the request that stored it.
    used: bytes of all objects of a queue, by its number.
    gone: objects evicted by the present request; `gone[-1]` is their number.
    """

    before: np.ndarray
    after: np.ndarray
    place: np.ndarray
    stored: np.ndarray
    used: np.ndarray
    gone: np.ndarray


@compiled
def empty_queues(objects: int, number: int) -> Queues:
    """Queues from 1 to `number`, without an object."""
    before = np.arange(objects + number + 1).astype(np.int32)
    return Queues(
        before,
        before.copy(),
        np.zeros(objects, np.int8),
        np.zeros(objects, np.int64),
        np.zeros(number + 1, np.int64),
        np.zeros(objects + 1, np.int32),
    )


@compiled_in_place
def last(queues: Queues, where: int) -> int:
    """The oldest object of a queue that has one."""
    return queues.before[len(queues.place) + where]


@compiled_in_place
def enter(queues: Queues, each: int, where: int) -> None:
    """Put an object that is in no queue at the front of one."""
    head = len(queues.place) + where
    first = queues.after[head]
    queues.before[each], queues.after[each] = head, first
    queues.before[first], queues.after[head] = each, each
    queues.place[each] = where
    queues.used[where] += queues.stored[each]


@compiled_in_place
def leave(queues: Queues, each: int) -> None:
    """Take an object out of its queue."""
    queues.after[queues.before[each]] = queues.after[each]
    queues.before[queues.after[each]] = queues.before[each]
    queues.used[queues.place[each]] -= queues.stored[each]
    queues.place[each] = 0


@compiled_in_place
def move(queues: Queues, each: int, where: int) -> None:
    """Take an object out of its queue, and put it at the front of one."""
    leave(queues, each)
    enter(queues, each, where)


@compiled_in_place
def evict(queues: Queues, each: int) -> None:
    """Take an object out of its queue, and out of the cache."""
    leave(queues, each)
    note_evicted(queues.gone, each)


@compiled_in_place
def note_evicted(gone: np.ndarray, each: int) -> None:
    """Add an object to those that the present request evicted."""
    gone[gone[-1]] = each
    gone[-1] += 1

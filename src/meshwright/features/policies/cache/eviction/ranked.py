"""Rules that evict the object of least rank: LFU, GDSF, and Belady's optimum."""

from typing import NamedTuple

import numpy as np

from meshwright.search.compiled import compiled

LFU, GDSF, BELADY = range(3)

_BYTES = 1e6
"""The size at which one use counts 1 in the ranks of GDSF."""


@compiled
def ranked(
    ids: np.ndarray,
    sizes: np.ndarray,
    following: np.ndarray,
    capacity: int,
    hits: np.ndarray,
    rule: int,
) -> None:
    """Fill in `hits` under one of the three rules.

    LFU ranks an object by the number of requests since it was stored. GDSF (Cherkasova,
    1998) divides this number by the size, and adds the rank of the object evicted last, so
    that old objects age; a new object may itself be the one of least rank. Belady ranks by
    the next request, the latest first: it has the fewest misses where all sizes are equal
    and each object asked for is stored. Of equal ranks, the object asked for earlier is
    evicted.

    following: number of the request that asks for the same object next, `len(ids)` for
        none; only Belady looks at it.
    """
    heap = _empty_heap(ids.max() + 1)
    uses = np.zeros(ids.max() + 1, np.int64)
    stored = np.zeros(ids.max() + 1, np.int64)
    free, age = capacity, 0.0
    for t in range(len(ids)):
        each, size = ids[t], sizes[t]
        hits[t] = heap.at[each] >= 0
        if hits[t]:
            uses[each] += 1
        elif size > capacity:
            continue
        else:
            while rule != GDSF and free < size:
                free += stored[_pop(heap)]
            uses[each], stored[each] = 1, size
            free -= size
        heap.asked[each] = t
        if rule == GDSF:
            heap.rank[each] = age + uses[each] * _BYTES / stored[each]
        else:
            heap.rank[each] = -following[t] if rule == BELADY else uses[each]
        _put(heap, each)
        while free < 0:
            victim = _pop(heap)
            free += stored[victim]
            age = heap.rank[victim]


class _Heap(NamedTuple):
    """A binary heap of the objects in the cache, the one to evict first at the top.

    objects: the heap; its first `length[0]` items.
    at: place of each object in the heap; -1 for an object that is not in it.
    rank: rank of each object.
    asked: number of the last request for each object.
    """

    objects: np.ndarray
    at: np.ndarray
    rank: np.ndarray
    asked: np.ndarray
    length: np.ndarray


@compiled
def _empty_heap(objects: int) -> _Heap:
    """A heap for objects below a number, without any."""
    return _Heap(
        np.zeros(objects, np.int32),
        np.full(objects, -1, np.int32),
        np.zeros(objects, np.float64),
        np.zeros(objects, np.int64),
        np.zeros(1, np.int64),
    )


@compiled
def _is_before(heap: _Heap, one: int, other: int) -> bool:
    """Whether an object is evicted before another one."""
    if heap.rank[one] != heap.rank[other]:
        return heap.rank[one] < heap.rank[other]
    return heap.asked[one] < heap.asked[other]


@compiled
def _pop(heap: _Heap) -> int:
    """Take the first object off the heap."""
    first = heap.objects[0]
    heap.at[first] = -1
    heap.length[0] -= 1
    if heap.length[0]:
        _sink(heap, int(heap.objects[heap.length[0]]), 0)
    return int(first)


@compiled
def _put(heap: _Heap, each: int) -> None:
    """Add an object to the heap, or move it to where its new rank belongs."""
    if heap.at[each] < 0:
        heap.at[each] = heap.length[0]
        heap.length[0] += 1
    place = heap.at[each]
    while place:
        parent = (place - 1) // 2
        if not _is_before(heap, each, int(heap.objects[parent])):
            break
        heap.objects[place] = heap.objects[parent]
        heap.at[heap.objects[place]] = place
        place = parent
    _sink(heap, each, place)


@compiled
def _sink(heap: _Heap, each: int, place: int) -> None:
    """Set an object at a place of the heap, or lower, below all objects before it."""
    while 2 * place + 1 < heap.length[0]:
        child = 2 * place + 1
        if child + 1 < heap.length[0] and _is_before(
            heap, int(heap.objects[child + 1]), int(heap.objects[child])
        ):
            child += 1
        if not _is_before(heap, int(heap.objects[child]), each):
            break
        heap.objects[place] = heap.objects[child]
        heap.at[heap.objects[place]] = place
        place = child
    heap.objects[place] = each
    heap.at[each] = place

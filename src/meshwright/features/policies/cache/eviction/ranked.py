"""Rules that evict the object of least rank: LFU, LFUDA, GDSF, and Belady's optimum."""

from typing import NamedTuple

import numpy as np

from meshwright.features.policies.cache.eviction.queues import note_evicted
from meshwright.search.compiled import compiled, compiled_in_place

LFU, LFUDA, GDSF, BELADY = range(4)

_BYTES = 1e6
"""The size at which one use counts 1 in the ranks of GDSF."""


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


class Ranked(NamedTuple):
    """The state of a rule: a heap, the uses and bytes of each object, two totals.

    used: bytes of all objects in the cache.
    age: rank of the object evicted last.
    gone: objects evicted by the present request; `gone[-1]` is their number.
    """

    heap: _Heap
    uses: np.ndarray
    stored: np.ndarray
    used: np.ndarray
    age: np.ndarray
    gone: np.ndarray


@compiled
def empty_ranked(objects: int) -> Ranked:
    """A cache without objects."""
    return Ranked(
        _empty_heap(objects),
        np.zeros(objects, np.int64),
        np.zeros(objects, np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.float64),
        np.zeros(objects + 1, np.int32),
    )


def ranked(
    ids: np.ndarray,
    sizes: np.ndarray,
    following: np.ndarray,
    capacity: int,
    hits: np.ndarray,
    rule: int,
) -> None:
    """Fill in `hits` under one of the rules.

    following: number of the request that asks for the same object next, `len(ids)` for
        none; only Belady looks at it.
    """
    _run(empty_ranked(ids.max() + 1), ids, sizes, following, capacity, hits, rule)


@compiled_in_place
def _run(  # noqa: PLR0913  the state, and the arguments of the loop
    state: Ranked,
    ids: np.ndarray,
    sizes: np.ndarray,
    following: np.ndarray,
    capacity: int,
    hits: np.ndarray,
    rule: int,
) -> None:
    """Fill in `hits` under one of the rules."""
    for t in range(len(ids)):
        coming = following[t] if rule == BELADY else t
        hits[t] = request_ranked(state, ids[t], sizes[t], capacity, rule, t, coming)


@compiled_in_place
def request_ranked(  # noqa: PLR0913  what a request is, and when
    state: Ranked,
    each: int,
    size: int,
    capacity: int,
    rule: int,
    now: int,
    following: int,
) -> bool:
    """Whether a request is a hit, after the cache has changed as a rule says.

    LFU ranks an object by the number of requests since it was stored. LFUDA adds the rank
    of the object evicted last, so that old objects age; GDSF (Cherkasova, 1998) does so,
    too, and divides the number by the size. Under both, a new object may itself be the one
    of least rank. Belady ranks by the next request, the latest first: it has the fewest
    misses where all sizes are equal and each object asked for is stored. Of equal ranks,
    the object asked for earlier is evicted.
    """
    heap, stored, used = state.heap, state.stored, state.used
    state.gone[-1] = 0
    hit = heap.at[each] >= 0
    if hit:
        state.uses[each] += 1
    elif size > capacity:
        return False
    else:
        while rule in (LFU, BELADY) and used[0] + size > capacity:
            _evict_first(state)
        state.uses[each], stored[each] = 1, size
        used[0] += size
    heap.asked[each] = now
    if rule == GDSF:
        heap.rank[each] = state.age[0] + state.uses[each] * _BYTES / stored[each]
    elif rule == LFUDA:
        heap.rank[each] = state.age[0] + state.uses[each]
    else:
        heap.rank[each] = -following if rule == BELADY else state.uses[each]
    _put(heap, each)
    while used[0] > capacity:
        state.age[0] = heap.rank[_evict_first(state)]
    return hit


@compiled_in_place
def _evict_first(state: Ranked) -> int:
    """Evict the object at the top of the heap, and return it."""
    victim = _pop(state.heap)
    state.used[0] -= state.stored[victim]
    note_evicted(state.gone, victim)
    return victim


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


@compiled_in_place
def _is_before(heap: _Heap, one: int, other: int) -> bool:
    """Whether an object is evicted before another one."""
    if heap.rank[one] != heap.rank[other]:
        return heap.rank[one] < heap.rank[other]
    return heap.asked[one] < heap.asked[other]


@compiled_in_place
def _pop(heap: _Heap) -> int:
    """Take the first object off the heap."""
    first = heap.objects[0]
    heap.at[first] = -1
    heap.length[0] -= 1
    if heap.length[0]:
        _sink(heap, int(heap.objects[heap.length[0]]), 0)
    return int(first)


@compiled_in_place
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


@compiled_in_place
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


@compiled_in_place
def forget_ranked(state: Ranked, each: int) -> None:
    """Take an object out, if it is in the cache."""
    if state.heap.at[each] >= 0:
        state.heap.rank[each] = -np.inf
        _put(state.heap, each)
        state.used[0] -= state.stored[_pop(state.heap)]

"""ARC (Megiddo and Modha, FAST 2003): recency and frequency, balanced by their ghosts."""

import numpy as np

from meshwright.features.policies.cache.eviction.queues import (
    Queues,
    empty_queues,
    enter,
    last,
    leave,
    move,
)
from meshwright.search.compiled import compiled, compiled_in_place

_ONCE, _AGAIN, _ONCE_GHOST, _AGAIN_GHOST = 1, 2, 3, 4
"""Objects asked for once and more often, in the cache and after their eviction."""


@compiled
def arc(ids: np.ndarray, sizes: np.ndarray, capacity: int, hits: np.ndarray) -> None:
    """Fill in `hits` under ARC, with bytes in place of the paper's pages.

    `target` is the number of bytes that objects asked for once may have. It grows when one
    of their ghosts is asked for, and shrinks with a ghost of the others, by the quotient
    of the ghosts' bytes, at least by one.
    """
    queues = empty_queues(ids.max() + 1, 4)
    used = queues.used
    target = 0.0
    for t in range(len(ids)):
        each, size = ids[t], sizes[t]
        place = queues.place[each]
        if place in (_ONCE, _AGAIN):
            hits[t] = True
            move(queues, each, _AGAIN)
            continue
        if place == _ONCE_GHOST:
            step = max(used[_AGAIN_GHOST] / used[_ONCE_GHOST], 1.0)
            target = min(target + step, float(capacity))
            leave(queues, each)
        elif place == _AGAIN_GHOST:
            step = max(used[_ONCE_GHOST] / used[_AGAIN_GHOST], 1.0)
            target = max(target - step, 0.0)
            leave(queues, each)
        if size > capacity:
            continue
        while used[_ONCE] + used[_AGAIN] + size > capacity:
            if place == 0:
                _make_room(queues, capacity, size, target)
            else:
                _replace(queues, target, place == _AGAIN_GHOST)
        queues.stored[each] = size
        enter(queues, each, _AGAIN if place else _ONCE)


@compiled_in_place
def _make_room(queues: Queues, capacity: int, size: int, target: float) -> None:
    """Evict one object for a new one that is no ghost, and forget ghosts beyond limits."""
    used = queues.used
    if used[_ONCE] + used[_ONCE_GHOST] + size > capacity:
        if not used[_ONCE_GHOST]:
            leave(queues, last(queues, _ONCE))
            return
        leave(queues, last(queues, _ONCE_GHOST))
    elif used.sum() >= 2 * capacity and used[_AGAIN_GHOST]:
        leave(queues, last(queues, _AGAIN_GHOST))
    _replace(queues, target, False)


@compiled_in_place
def _replace(queues: Queues, target: float, is_again: bool) -> None:
    """Make the last object of the queue that is over its target a ghost."""
    once = queues.used[_ONCE]
    over = once > 0 and (once > target or (once == target and is_again))
    where = _ONCE if over or not queues.used[_AGAIN] else _AGAIN
    move(queues, last(queues, where), where + 2)

"""A large-neighbourhood step: macros are taken out, and put back at the cheapest places."""

import numpy as np

from meshwright.features.codesign.floorplan.costs.state import (
    PlacementState,
    commit,
    proxy,
    shift,
)
from meshwright.features.codesign.floorplan.costs.tables import Tables
from meshwright.features.codesign.floorplan.placers.targets import (
    HARD_ALIGN,
    HARD_SHIFT,
    REMOVED,
    Walk,
    draw,
    pick,
    target_of,
)
from meshwright.features.codesign.floorplan.starts.room import Room, nearest_free
from meshwright.search.arrays import Floats
from meshwright.search.compiled import compiled_in_place

CANDIDATES = 8
"""Places that are evaluated for each macro."""

_AWAY = -1e12
"""Coordinate of a macro that is taken out."""

_DRAWS = 8
"""Random macros of which the nearest is taken out, too."""


@compiled_in_place
def reinsert(
    tables: Tables,
    state: PlacementState,
    room: Room,
    walk: Walk,
    weights: Floats,
    limit: float,
) -> bool:
    """Take macros out and put them back one by one, each at the best of some legal places.

    The result is kept if its proxy is at most `limit`. Returns whether it was kept.
    """
    _take_out(state, room, walk)
    is_legal = True
    for i in range(REMOVED):
        is_legal = is_legal and _put_back(tables, state, room, walk, weights, i)
    value = proxy(tables, state, weights)
    if is_legal and value <= limit:
        walk.current[0] = value
        return True
    for i in range(REMOVED):
        block = int(walk.removed[i])
        shift(tables, state, block, walk.removed_x[i], walk.removed_y[i])
        commit(state)
    return False


@compiled_in_place
def _take_out(state: PlacementState, room: Room, walk: Walk) -> None:
    """Choose macros that lie near each other, and remove them from the walk's places."""
    for i in range(len(room.solid)):
        block = room.solid[i]
        walk.x[block], walk.y[block] = state.x[block], state.y[block]
    for i in range(REMOVED):
        chosen, least = -1, np.inf
        while chosen < 0:
            for _ in range(_DRAWS if i else 1):
                block = pick(walk, room.hard)
                away = abs(state.x[block] - walk.removed_x[0]) if i else 0.0
                away += abs(state.y[block] - walk.removed_y[0]) if i else 0.0
                if walk.x[block] > _AWAY and away < least:
                    chosen, least = block, away
        walk.removed[i] = chosen
        walk.removed_x[i], walk.removed_y[i] = state.x[chosen], state.y[chosen]
        walk.x[chosen], walk.y[chosen] = _AWAY, _AWAY


@compiled_in_place
def _put_back(
    tables: Tables,
    state: PlacementState,
    room: Room,
    walk: Walk,
    weights: Floats,
    index: int,
) -> bool:
    """Put one macro that was taken out at the cheapest of some places, if one is free."""
    block, places = int(walk.removed[index]), (walk.x, walk.y)
    best_x, best_y, least = 0.0, 0.0, np.inf
    first = int(draw(walk.random) * REMOVED)
    for i in range(CANDIDATES):
        at = (first + i) % REMOVED
        target = (walk.removed_x[at], walk.removed_y[at])
        if i >= REMOVED:
            kind = HARD_ALIGN if i % 2 else HARD_SHIFT
            target = target_of(tables, state, walk, block, kind)
        x, y, is_free = nearest_free(tables, room, places, block, target)
        if is_free:
            shift(tables, state, block, x, y)
            commit(state)
            value = proxy(tables, state, weights)
            if value < least:
                best_x, best_y, least = x, y, value
    if least == np.inf:
        return False
    shift(tables, state, block, best_x, best_y)
    commit(state)
    walk.x[block], walk.y[block] = best_x, best_y
    return True

"""Simulated annealing of a placement on its exact proxy cost, in one compiled loop."""

import math

from meshwright.features.codesign.floorplan.costs.state import (
    PlacementState,
    commit,
    proxy,
    shift,
    take_back,
)
from meshwright.features.codesign.floorplan.costs.tables import Tables
from meshwright.features.codesign.floorplan.placers.reinsert import CANDIDATES, reinsert
from meshwright.features.codesign.floorplan.placers.targets import (
    FLIP,
    HARD_ALIGN,
    HARD_SHIFT,
    HARD_SWAP,
    REINSERT,
    REMOVED,
    SOFT_ALIGN,
    SOFT_SHIFT,
    Walk,
    draw,
    pick,
    target_of,
)
from meshwright.features.codesign.floorplan.starts.room import (
    Room,
    nearest_free,
    obstacle,
)
from meshwright.search.arrays import Floats
from meshwright.search.compiled import compiled_in_place

_TARGET = 0.4
"""Share of accepted shifts to which the windows of shifts are adapted."""

_GROWTH = 1.01
"""Factor of a window after an accepted shift."""


@compiled_in_place
def anneal(
    tables: Tables,
    state: PlacementState,
    room: Room,
    walk: Walk,
    weights: Floats,
    heat: Floats,
) -> None:
    """Evaluate as many moves as `heat` has temperatures, one at each.

    A temperature is in units of the proxy; at 0 only gains are accepted.
    """
    walk.current[0] = proxy(tables, state, weights)
    i = 0
    while i < len(heat):
        kind = 0
        chance = draw(walk.random)
        while kind < len(walk.shares) - 1 and chance >= walk.shares[kind]:
            kind += 1
        if kind == REINSERT and heat[i] > 0:
            kind = HARD_SHIFT
        limit = walk.current[0] - heat[i] * math.log(1.0 - draw(walk.random))
        walk.counts[kind, 0] += 1
        if kind <= SOFT_ALIGN:
            is_taken = _try_soft(tables, state, room, walk, weights, (kind, limit))
        elif kind <= HARD_ALIGN:
            is_taken = _try_hard(tables, state, room, walk, weights, (kind, limit))
        elif kind == HARD_SWAP:
            is_taken = _try_swap(tables, state, room, walk, weights, limit)
        elif kind == FLIP:
            is_taken = _try_flip(tables, state, room, walk, weights, limit)
        else:
            is_taken = reinsert(tables, state, room, walk, weights, limit)
            i += REMOVED * CANDIDATES - 1
        walk.counts[kind, 1] += is_taken
        i += 1


@compiled_in_place
def _decide(
    tables: Tables, state: PlacementState, walk: Walk, weights: Floats, limit: float
) -> bool:
    """Accept the moves since the last commit if the proxy is at most `limit`.

    Else their effects are undone; the caller puts the blocks back.
    """
    value = proxy(tables, state, weights)
    if value <= limit:
        walk.current[0] = value
        commit(state)
        return True
    take_back(state)
    return False


@compiled_in_place
def _try_soft(
    tables: Tables,
    state: PlacementState,
    room: Room,
    walk: Walk,
    weights: Floats,
    how: tuple[int, float],
) -> bool:
    kind, limit = how
    block = pick(walk, room.soft)
    old_x, old_y = state.x[block], state.y[block]
    x, y = target_of(tables, state, walk, block, kind)
    half_width, half_height = tables.width[block] / 2, tables.height[block] / 2
    x = min(max(x, half_width), max(half_width, tables.width_all - half_width))
    y = min(max(y, half_height), max(half_height, tables.height_all - half_height))
    shift(tables, state, block, x, y)
    is_taken = _decide(tables, state, walk, weights, limit)
    if not is_taken:
        state.x[block], state.y[block] = old_x, old_y
    if kind == SOFT_SHIFT:
        _adapt(tables, walk, 0, is_taken)
    return is_taken


@compiled_in_place
def _adapt(tables: Tables, walk: Walk, which: int, is_taken: bool) -> None:
    """Widen or narrow the window of shifts, so that a share of `_TARGET` is accepted."""
    least = 0.25 * min(
        tables.cell_width / tables.width_all, tables.cell_height / tables.height_all
    )
    if is_taken:
        walk.reach[which] = min(0.5, walk.reach[which] * _GROWTH)
    else:
        shrink = _GROWTH ** (-_TARGET / (1 - _TARGET))
        walk.reach[which] = max(least, walk.reach[which] * shrink)


@compiled_in_place
def _try_hard(
    tables: Tables,
    state: PlacementState,
    room: Room,
    walk: Walk,
    weights: Floats,
    how: tuple[int, float],
) -> bool:
    kind, limit = how
    block = pick(walk, room.hard)
    old_x, old_y = state.x[block], state.y[block]
    target = target_of(tables, state, walk, block, kind)
    x, y, is_free = nearest_free(tables, room, (state.x, state.y), block, target)
    is_taken = False
    if is_free:
        shift(tables, state, block, x, y)
        is_taken = _decide(tables, state, walk, weights, limit)
        if not is_taken:
            state.x[block], state.y[block] = old_x, old_y
    if kind == HARD_SHIFT:
        _adapt(tables, walk, 1, is_taken)
    return is_taken


@compiled_in_place
def _try_swap(
    tables: Tables,
    state: PlacementState,
    room: Room,
    walk: Walk,
    weights: Floats,
    limit: float,
) -> bool:
    a, b = pick(walk, room.hard), pick(walk, room.hard)
    ax, ay, bx, by = state.x[a], state.y[a], state.x[b], state.y[b]
    if a == b:
        return False
    if tables.width[a] != tables.width[b] or tables.height[a] != tables.height[b]:
        state.x[a], state.y[a], state.x[b], state.y[b] = bx, by, ax, ay
        fits = _is_legal(tables, state, room, a) and _is_legal(tables, state, room, b)
        state.x[a], state.y[a], state.x[b], state.y[b] = ax, ay, bx, by
        if not fits:
            return False
    shift(tables, state, a, bx, by)
    shift(tables, state, b, ax, ay)
    if _decide(tables, state, walk, weights, limit):
        return True
    state.x[a], state.y[a], state.x[b], state.y[b] = ax, ay, bx, by
    return False


@compiled_in_place
def _is_legal(tables: Tables, state: PlacementState, room: Room, block: int) -> bool:
    x, y = state.x[block], state.y[block]
    margin = room.clearance
    half_width, half_height = tables.width[block] / 2, tables.height[block] / 2
    return (
        x - half_width >= margin
        and y - half_height >= margin
        and x + half_width <= tables.width_all - margin
        and y + half_height <= tables.height_all - margin
        and obstacle(tables, room, (state.x, state.y), block, x, y) == -1
    )


@compiled_in_place
def _try_flip(
    tables: Tables,
    state: PlacementState,
    room: Room,
    walk: Walk,
    weights: Floats,
    limit: float,
) -> bool:
    block = pick(walk, room.hard)
    first = 2 * int(2 * draw(walk.random))
    _mirror(state, block, first)
    shift(tables, state, block, state.x[block], state.y[block])
    if _decide(tables, state, walk, weights, limit):
        return True
    _mirror(state, block, first)
    return False


@compiled_in_place
def _mirror(state: PlacementState, block: int, first: int) -> None:
    """Mirror a block's pins; first: 0 for left and right, 2 for top and bottom."""
    state.turn[block, first] = -state.turn[block, first]
    state.turn[block, first + 1] = -state.turn[block, first + 1]

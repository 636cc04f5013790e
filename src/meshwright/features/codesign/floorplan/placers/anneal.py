"""Simulated annealing of a placement on its exact proxy cost, in one compiled loop."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.features.codesign.floorplan.costs.state import (
    PlacementState,
    commit,
    end_place,
    proxy,
    shift,
    take_back,
)
from meshwright.features.codesign.floorplan.costs.tables import Tables
from meshwright.features.codesign.floorplan.placers.room import (
    Room,
    nearest_free,
    obstacle,
)
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled_in_place

SOFT_SHIFT, SOFT_ALIGN, HARD_SHIFT, HARD_ALIGN, HARD_SWAP, FLIP = range(6)
"""Kinds of moves."""

_SHARES = (0.45, 0.15, 0.2, 0.05, 0.08, 0.07)
"""Share of each kind among the moves that are tried."""

_TARGET = 0.4
"""Share of accepted shifts to which the windows of shifts are adapted."""

_GROWTH = 1.01
"""Factor of a window after an accepted shift."""


class Walk(NamedTuple):
    """The numbers that an annealing walk carries on.

    random: state of the random numbers (xorshift).
    reach: half the side of the window of shifts of soft and of hard macros, as shares of
        the canvas.
    current: proxy of the state.
    shares: share of each kind of move, summed up.
    counts: moves tried and accepted, by kind, [kinds, 2].
    """

    random: NDArray[np.uint64]
    reach: Floats
    current: Floats
    shares: Floats
    counts: Ints


def make_walk(room: Room, seed: int) -> Walk:
    """A walk at its beginning; kinds of moves without blocks get no share."""
    soft, hard = len(room.soft), len(room.hard)
    has = (soft, soft, hard, hard, hard - 1, hard)
    shares = np.cumsum([s * (h > 0) for s, h in zip(_SHARES, has, strict=True)])
    mixed = np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)
    return Walk(
        mixed,
        np.array([0.25, 0.25]),
        np.zeros(1),
        shares / max(shares[-1], 1e-9),
        np.zeros((len(_SHARES), 2), np.int64),
    )


@compiled_in_place
def draw(random: NDArray[np.uint64]) -> float:
    """A random number from 0 to below 1."""
    state = random[0]
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    random[0] = state
    return (state >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled_in_place
def pick(walk: Walk, items: Ints) -> int:
    """A random item."""
    return items[int(draw(walk.random) * len(items))]


@compiled_in_place
def anneal(
    tables: Tables,
    state: PlacementState,
    room: Room,
    walk: Walk,
    weights: Floats,
    heat: Floats,
) -> None:
    """Try as many moves as `heat` has temperatures, one move at each.

    A temperature is in units of the proxy; at 0 only gains are accepted.
    """
    walk.current[0] = proxy(tables, state, weights)
    for i in range(len(heat)):
        kind = 0
        chance = draw(walk.random)
        while kind < len(walk.shares) - 1 and chance >= walk.shares[kind]:
            kind += 1
        limit = walk.current[0] - heat[i] * math.log(1.0 - draw(walk.random))
        walk.counts[kind, 0] += 1
        if kind <= SOFT_ALIGN:
            is_taken = _try_soft(tables, state, room, walk, weights, (kind, limit))
        elif kind <= HARD_ALIGN:
            is_taken = _try_hard(tables, state, room, walk, weights, (kind, limit))
        elif kind == HARD_SWAP:
            is_taken = _try_swap(tables, state, room, walk, weights, limit)
        else:
            is_taken = _try_flip(tables, state, room, walk, weights, limit)
        walk.counts[kind, 1] += is_taken


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
    x, y = _target(tables, state, walk, block, kind)
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
def _target(
    tables: Tables, state: PlacementState, walk: Walk, block: int, kind: int
) -> tuple[float, float]:
    """The place to which a block is to move: in its window, or in line with something."""
    x, y = state.x[block], state.y[block]
    if kind in (SOFT_ALIGN, HARD_ALIGN):
        return _aligned(tables, state, walk, block)
    reach = walk.reach[0] if kind == SOFT_SHIFT else walk.reach[1]
    x += (2 * draw(walk.random) - 1) * reach * tables.width_all
    y += (2 * draw(walk.random) - 1) * reach * tables.height_all
    return x, y


@compiled_in_place
def _aligned(
    tables: Tables, state: PlacementState, walk: Walk, block: int
) -> tuple[float, float]:
    """A place in line with another end of one of the block's nets, or with the grid.

    With an end: near it, or exactly in x, in y, or in both.
    """
    x, y = state.x[block], state.y[block]
    how, first = draw(walk.random), tables.touched_at[block]
    count = tables.touched_at[block + 1] - first
    if how < 0.1 or count == 0:
        return _on_grid(tables, walk, block, x, y)
    own = int(tables.touched[first + int(draw(walk.random) * count)])
    net = int(tables.end_net[own])
    begin, end = int(tables.ends_at[net]), int(tables.ends_at[net + 1])
    other = begin + int(draw(walk.random) * (end - begin))
    own_x, own_y = end_place(tables, state, own)
    other_x, other_y = end_place(tables, state, other)
    if how < 0.5:
        x += other_x - own_x + (2 * draw(walk.random) - 1) * tables.cell_width
        y += other_y - own_y + (2 * draw(walk.random) - 1) * tables.cell_height
        return x, y
    if how < 0.85:
        x += other_x - own_x
    if how >= 0.7:
        y += other_y - own_y
    return x, y


@compiled_in_place
def _on_grid(
    tables: Tables, walk: Walk, block: int, x: float, y: float
) -> tuple[float, float]:
    """The nearest place in x or y at which an edge or the centre is on the grid."""
    side = int(3 * draw(walk.random)) / 2 - 0.5  # left edge, centre, right edge
    if draw(walk.random) < 0.5:
        size, offset = tables.cell_width, side * tables.width[block]
        shift_by = 0.5 if side == 0 else 0.0
        return (round((x + offset) / size - shift_by) + shift_by) * size - offset, y
    size, offset = tables.cell_height, side * tables.height[block]
    shift_by = 0.5 if side == 0 else 0.0
    return x, (round((y + offset) / size - shift_by) + shift_by) * size - offset


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
    target = _target(tables, state, walk, block, kind)
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

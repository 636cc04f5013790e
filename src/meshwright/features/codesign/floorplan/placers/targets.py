"""The numbers of an annealing walk, and the places to which its moves aim."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.features.codesign.floorplan.costs.state import PlacementState, end_place
from meshwright.features.codesign.floorplan.costs.tables import Tables
from meshwright.features.codesign.floorplan.starts.room import Room
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled_in_place

SOFT_SHIFT, SOFT_ALIGN, HARD_SHIFT, HARD_ALIGN, HARD_SWAP, FLIP, REINSERT = range(7)
"""Kinds of moves."""

_SHARES = (0.45, 0.15, 0.2, 0.05, 0.08, 0.07, 0.02)
"""Share of each kind among the moves that are tried; `REINSERT` only in descent.

At temperatures above zero it has not paid (Ariane133, and 80 macros that fill 85 %); in
descent of the latter the proxy fell from 1.402 to 1.390 on average of three seeds.
"""

REMOVED = 3
"""Macros that `REINSERT` takes out together."""


class Walk(NamedTuple):
    """The numbers that an annealing walk carries on.

    random: state of the random numbers (xorshift).
    reach: half the side of the window of shifts of soft and of hard macros, as shares of
        the canvas.
    current: proxy of the state.
    shares: share of each kind of move, summed up.
    counts: moves tried and accepted, by kind, [kinds, 2].
    removed: macros that one move takes out and puts back.
    removed_x, removed_y: their places before.
    x, y: scratch for places of all blocks.
    """

    random: NDArray[np.uint64]
    reach: Floats
    current: Floats
    shares: Floats
    counts: Ints
    removed: Ints
    removed_x: Floats
    removed_y: Floats
    x: Floats
    y: Floats


def make_walk(tables: Tables, room: Room, seed: int) -> Walk:
    """A walk at its beginning; kinds of moves without blocks get no share."""
    soft, hard = len(room.soft), len(room.hard)
    has = (soft, soft, hard, hard, hard - 1, hard, hard - REMOVED)
    shares = np.cumsum([s * (h > 0) for s, h in zip(_SHARES, has, strict=True)])
    mixed = np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)
    return Walk(
        mixed,
        np.array([0.25, 0.25]),
        np.zeros(1),
        shares / max(shares[-1], 1e-9),
        np.zeros((len(_SHARES), 2), np.int64),
        np.zeros(REMOVED, np.int64),
        *np.zeros((2, REMOVED)),
        *np.zeros((2, len(tables.width))),
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
def target_of(
    tables: Tables, state: PlacementState, walk: Walk, block: int, kind: int
) -> tuple[float, float]:
    """The place to which a block is to move: in its window, or in line with something."""
    x, y = state.x[block], state.y[block]
    if kind in (SOFT_ALIGN, HARD_ALIGN):
        return aligned(tables, state, walk, block)
    reach = walk.reach[0] if kind == SOFT_SHIFT else walk.reach[1]
    x += (2 * draw(walk.random) - 1) * reach * tables.width_all
    y += (2 * draw(walk.random) - 1) * reach * tables.height_all
    return x, y


@compiled_in_place
def aligned(
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

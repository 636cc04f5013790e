"""Where macros may lie: on the canvas, apart from each other, outside of blockages.

Macros that a placer moves keep a small clearance, so that a placement is legal for every
reader, in whichever number format it computes.
"""

from typing import NamedTuple

import numpy as np

from meshwright.features.codesign.floorplan.costs.legality import MACRO_FREE
from meshwright.features.codesign.floorplan.costs.tables import Tables
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.compiled import compiled_in_place

_CLEARANCE = 1e-9
"""Least distance between macros, as a share of the canvas."""


class Room(NamedTuple):
    """All that legal places of macros depend on.

    solid: macros, fixed ones too. hard, soft: macros and soft macros that may move.
    left, bottom, right, top: rectangles closed to macros.
    clearance: microns.
    """

    solid: Ints
    hard: Ints
    soft: Ints
    left: Floats
    bottom: Floats
    right: Floats
    top: Floats
    clearance: float


def make_room(tables: Tables, placement: ChipPlacement) -> Room:
    """The places that a placement's netlist, fixed macros and blockages leave."""
    canvas = placement.canvas
    may_move: Bools = ~placement.is_fixed & tables.has_area
    closed = [
        b for b in canvas.blockages if not MACRO_FREE[0] <= b.rate < MACRO_FREE[1]
    ]
    sides = ("left", "bottom", "right", "top")
    return Room(
        np.flatnonzero(tables.is_hard),
        np.flatnonzero(tables.is_hard & may_move),
        np.flatnonzero(~tables.is_hard & may_move),
        *(np.array([getattr(b, side) for b in closed], np.float64) for side in sides),
        clearance=_CLEARANCE * max(canvas.width, canvas.height),
    )


@compiled_in_place
def is_on_canvas(tables: Tables, block: int, x: float, y: float) -> bool:
    """Whether a block at this place lies on the canvas."""
    half_width, half_height = tables.width[block] / 2, tables.height[block] / 2
    return (
        x - half_width >= 0
        and y - half_height >= 0
        and x + half_width <= tables.width_all
        and y + half_height <= tables.height_all
    )


@compiled_in_place
def obstacle(
    tables: Tables,
    room: Room,
    places: tuple[Floats, Floats],
    block: int,
    x: float,
    y: float,
) -> int:
    """A macro, or -2 minus the index of a blockage, that overlaps a macro at (x, y).

    -1 if none does. places: x and y of all blocks.
    """
    xs, ys = places
    half_width = tables.width[block] / 2 + room.clearance
    half_height = tables.height[block] / 2 + room.clearance
    for i in range(len(room.solid)):
        other = room.solid[i]
        if (
            abs(xs[other] - x) < half_width + tables.width[other] / 2
            and abs(ys[other] - y) < half_height + tables.height[other] / 2
            and other != block
        ):
            return other
    for i in range(len(room.left)):
        if (
            x + half_width > room.left[i]
            and x - half_width < room.right[i]
            and y + half_height > room.bottom[i]
            and y - half_height < room.top[i]
        ):
            return -2 - i
    return -1


@compiled_in_place
def nearest_free(
    tables: Tables,
    room: Room,
    places: tuple[Floats, Floats],
    block: int,
    target: tuple[float, float],
) -> tuple[float, float, bool]:
    """A legal place near the target, found by few pushes; the last value says whether.

    Each push moves the macro out of one obstacle, the shortest way.
    """
    half_width, half_height = tables.width[block] / 2, tables.height[block] / 2
    margin = 2 * room.clearance
    x, y = target
    for _ in range(_PUSHES):
        x = min(max(x, half_width + margin), tables.width_all - half_width - margin)
        y = min(max(y, half_height + margin), tables.height_all - half_height - margin)
        other = obstacle(tables, room, places, block, x, y)
        if other == -1:
            return x, y, is_on_canvas(tables, block, x, y)
        if other >= 0:
            other_x, other_y = places[0][other], places[1][other]
            reach_x = half_width + tables.width[other] / 2 + margin
            reach_y = half_height + tables.height[other] / 2 + margin
        else:
            i = -2 - other
            other_x = (room.left[i] + room.right[i]) / 2
            other_y = (room.bottom[i] + room.top[i]) / 2
            reach_x = half_width + (room.right[i] - room.left[i]) / 2 + margin
            reach_y = half_height + (room.top[i] - room.bottom[i]) / 2 + margin
        if reach_x - abs(x - other_x) < reach_y - abs(y - other_y):
            x = other_x + (reach_x if x >= other_x else -reach_x)
        else:
            y = other_y + (reach_y if y >= other_y else -reach_y)
    return x, y, False


_PUSHES = 4
"""Pushes after which a target is given up."""

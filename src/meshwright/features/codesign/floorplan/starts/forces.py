"""Force-directed placement of soft macros, as Circuit Training does it.

Soft macros begin at the centre of the canvas. A net pulls from its source to each sink, as
a spring; overlapping blocks push each other apart. In each step the largest force along an
axis becomes the longest move, and moves that leave the canvas are not made (published code
of MacroPlacement, TILOS; schedule of Circuit Training).
"""

import numpy as np

from meshwright.features.codesign.floorplan.costs.state import (
    PlacementState,
    end_place,
)
from meshwright.features.codesign.floorplan.costs.tables import Tables
from meshwright.features.codesign.floorplan.starts.room import Room
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled_in_place

SCHEDULE = np.array(
    [
        (100, 1e2, 0.0),
        (100, 1e-3, 1e6),
        (100, 1e-5, 1e7),
    ]
)
"""Steps, factor of attraction and factor of repulsion of each stage (Circuit Training)."""

_FAINT = 1e-4
"""Ratio of factors below which the weaker force is not computed (published code)."""

_TOUCH = 1e-4
"""Share of the canvas by which blocks must overlap to push each other.

The published code has an absolute distance; chips of any size need a relative one.
"""


def make_forces(tables: Tables) -> tuple[Floats, Floats, Ints]:
    """Scratch for `place_soft`: forces on each block along x and y, and an order."""
    count = len(tables.width)
    return np.zeros(count), np.zeros(count), np.flatnonzero(tables.has_area)


@compiled_in_place
def place_soft(
    tables: Tables,
    state: PlacementState,
    room: Room,
    schedule: Floats,
    forces: tuple[Floats, Floats, Ints],
) -> None:
    """Place the soft macros that may move; nothing but `state.x` and `state.y` changes."""
    if len(room.soft) == 0:
        return
    for i in range(len(room.soft)):
        state.x[room.soft[i]] = tables.width_all / 2
        state.y[room.soft[i]] = tables.height_all / 2
    for stage in range(len(schedule)):
        steps = int(schedule[stage, 0])
        attract, repel = schedule[stage, 1], schedule[stage, 2]
        reach = max(tables.width_all, tables.height_all) / max(steps, 1)
        for _ in range(steps):
            forces[0][:] = 0.0
            forces[1][:] = 0.0
            if repel == 0 or attract / repel > _FAINT:
                _attract(tables, state, forces, attract)
            if attract == 0 or repel / attract > _FAINT:
                _repel(tables, state, forces, repel * reach)
            _move(tables, state, room, forces, reach)


@compiled_in_place
def _attract(
    tables: Tables,
    state: PlacementState,
    forces: tuple[Floats, Floats, Ints],
    factor: float,
) -> None:
    """Add the pull of each net along the lines from its source to its sinks."""
    fx, fy, _ = forces
    for net in range(len(tables.wire_weight)):
        first, last = tables.ends_at[net], tables.ends_at[net + 1]
        source = tables.end_block[first]
        x, y = end_place(tables, state, first)
        spring = factor * tables.wire_weight[net]
        for end in range(first + 1, last):
            sink_x, sink_y = end_place(tables, state, end)
            pull_x, pull_y = spring * (sink_x - x), spring * (sink_y - y)
            fx[source] += pull_x
            fy[source] += pull_y
            sink = tables.end_block[end]
            fx[sink] -= pull_x
            fy[sink] -= pull_y


@compiled_in_place
def _repel(
    tables: Tables,
    state: PlacementState,
    forces: tuple[Floats, Floats, Ints],
    factor: float,
) -> None:
    """Add the push between overlapping blocks, found in order of their left sides."""
    fx, fy, order = forces
    for i in range(1, len(order)):
        block, j = order[i], i - 1
        left = state.x[block] - tables.width[block] / 2
        while j >= 0 and state.x[order[j]] - tables.width[order[j]] / 2 > left:
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = block
    touch_x = _TOUCH * tables.width_all
    touch_y = _TOUCH * tables.height_all
    for i in range(len(order)):
        a = order[i]
        right = state.x[a] + tables.width[a] / 2
        for j in range(i + 1, len(order)):
            b = order[j]
            if state.x[b] - tables.width[b] / 2 >= right:
                break
            dx, dy = state.x[a] - state.x[b], state.y[a] - state.y[b]
            if (
                abs(dy) > (tables.height[a] + tables.height[b]) / 2 - touch_y
                or abs(dx) > (tables.width[a] + tables.width[b]) / 2 - touch_x
                or (tables.is_hard[a] and tables.is_hard[b])
            ):
                continue
            away = (dx * dx + dy * dy) ** 0.5
            if away == 0:
                # The later block goes up and to the right, whatever the order of the scan.
                side = -1.0 if a < b else 1.0
                dx, dy, away = side, side, 1.0
            fx[a] += factor * dx / away
            fy[a] += factor * dy / away
            fx[b] -= factor * dx / away
            fy[b] -= factor * dy / away


@compiled_in_place
def _move(
    tables: Tables,
    state: PlacementState,
    room: Room,
    forces: tuple[Floats, Floats, Ints],
    reach: float,
) -> None:
    """Move soft macros along their forces, the most at most by `reach` microns an axis."""
    fx, fy, _ = forces
    most_x = most_y = 0.0
    for i in range(len(room.soft)):
        most_x = max(most_x, abs(fx[room.soft[i]]))
        most_y = max(most_y, abs(fy[room.soft[i]]))
    for i in range(len(room.soft)):
        block = room.soft[i]
        x = state.x[block] + (reach * fx[block] / most_x if most_x > 0 else 0.0)
        y = state.y[block] + (reach * fy[block] / most_y if most_y > 0 else 0.0)
        half_width, half_height = tables.width[block] / 2, tables.height[block] / 2
        if (
            x >= half_width
            and y >= half_height
            and x + half_width <= tables.width_all
            and y + half_height <= tables.height_all
        ):
            state.x[block], state.y[block] = x, y

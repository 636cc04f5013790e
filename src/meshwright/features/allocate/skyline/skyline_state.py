"""The state of the skyline search, and its changes, which can be undone (`skyline.py`)."""

from typing import Any, NamedTuple

import numpy as np

from meshwright.features.allocate.canonical.packing_state import (
    FLOOR,
    HIGH,
    LEAST,
    PLACED,
    floor_of,
    integers,
    lowest,
    note,
    room,
)
from meshwright.features.allocate.problem.sections import BufferColumns
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled_in_place

SCALARS = integers(
    "trail_end", "depth", "nodes", "stamp", "num_dirty", "failed_section", "capacity"
)
"""Whole numbers of a state: ends of its stacks, and counts."""


class SkylineState(NamedTuple):
    """The whole state of a search, over n buffers and s sections.

    offset: [n] offsets of placed buffers, -1 for others. least: [n] minimum offsets.
    floor, total: [s] least minimum offset, and sum of the sizes, of unplaced buffers.
    slack: [s] free bytes above the floor that the unplaced buffers leave.
    weight: [s] weights of failures. key: [n] buffers of greater keys are tried first.
    buffer, mark: [3n] the stack: placed buffers, and the ends of the trail before them.
    trail: [t, 3] kind, index and old value of all that has changed.
    stamp, dirty: [s] sections whose floor is out of date.
    """

    scalars: Any
    bump: Floats
    offset: Ints
    least: Ints
    floor: Ints
    total: Ints
    slack: Ints
    weight: Floats
    key: Floats
    buffer: Ints
    mark: Ints
    trail: Ints
    stamp: Ints
    dirty: Ints


def new_skyline(columns: BufferColumns, capacity: int) -> SkylineState:
    """The state of a search before its first node."""
    n, s = len(columns.size), len(columns.of_at) - 1
    changes = len(columns.near) + len(columns.of) + n
    scalars = np.zeros(1, SCALARS)
    scalars["capacity"], scalars["stamp"] = capacity, 1
    state = SkylineState(
        scalars=scalars,
        bump=np.ones(1),
        offset=np.full(n, -1, np.int64),
        least=np.zeros(n, np.int64),
        floor=np.zeros(s, np.int64),
        total=np.zeros(s, np.int64),
        slack=np.zeros(s, np.int64),
        weight=np.zeros(s),
        key=(columns.duration / columns.duration.max()) * columns.size,
        buffer=np.zeros(n + 1, np.int64),
        mark=np.zeros(n + 1, np.int64),
        trail=np.zeros((_TRAIL * changes, 3), np.int64),
        stamp=np.zeros(s, np.int64),
        dirty=np.zeros(s, np.int64),
    )
    for index in range(n):
        state.least[index] = lowest(columns, index, 0)
        state.total[columns.sections[columns.at[index] : columns.at[index + 1]]] += (
            columns.size[index]
        )
    for section in range(s):
        touch(state, section)
    return state


_TRAIL = 8
"""Changes that the trail can hold, over those of one packing without failures."""


@compiled_in_place
def touch(st: SkylineState, k: int) -> None:
    """Mark the floor of section k as out of date."""
    z = st.scalars[0]
    if st.stamp[k] != z.stamp:
        st.stamp[k] = z.stamp
        st.dirty[z.num_dirty] = k
        z.num_dirty += 1


@compiled_in_place
def raise_least(c: BufferColumns, st: SkylineState, i: int, offset: int) -> bool:
    """Raise the minimum offset of buffer i; whether it still fits below the capacity."""
    note(st.trail, st.scalars[0], LEAST, i, int(st.least[i]))
    st.least[i] = lowest(c, i, offset)
    for e in range(c.at[i], c.at[i + 1]):
        touch(st, c.sections[e])
    fits = st.least[i] + c.size[i] <= st.scalars[0].capacity
    if not fits:
        st.scalars[0].failed_section = c.sections[c.at[i]]
    return bool(fits)


@compiled_in_place
def settle(c: BufferColumns, st: SkylineState) -> bool:
    """Bring the floors up to date; whether each section has room for its buffers."""
    z = st.scalars[0]
    fits = True
    for d in range(z.num_dirty):
        k = int(st.dirty[d])
        note(st.trail, z, FLOOR, k, int(st.floor[k]))
        st.floor[k] = floor_of(c, st.offset, st.least, k)
        if st.total[k] > 0:
            st.slack[k] = room(c, int(z.capacity), k, int(st.floor[k])) - st.total[k]
            if st.slack[k] < 0:
                fits = False
                z.failed_section = k
                break
    z.num_dirty = 0
    z.stamp += 1
    return fits


@compiled_in_place
def put(c: BufferColumns, st: SkylineState, i: int) -> bool:
    """Place buffer i at its minimum offset; whether the rest may fit."""
    z = st.scalars[0]
    z.nodes += 1
    st.buffer[z.depth], st.mark[z.depth] = i, z.trail_end
    z.depth += 1
    note(st.trail, z, PLACED, i, 0)
    st.offset[i] = st.least[i]
    top = st.least[i] + c.size[i]
    for e in range(c.at[i], c.at[i + 1]):
        st.total[c.sections[e]] -= c.size[i]
        touch(st, c.sections[e])
    fits = top <= z.capacity
    for e in range(c.near_at[i], c.near_at[i + 1]):
        j = c.near[e]
        if st.offset[j] < 0 and st.least[j] < top:
            fits = raise_least(c, st, j, top) and fits
    if not fits:
        z.num_dirty = 0
        z.stamp += 1
        return False
    return settle(c, st)


@compiled_in_place
def restore(c: BufferColumns, st: SkylineState, end: int) -> None:
    """Undo all that was recorded from `end` of the trail on."""
    z = st.scalars[0]
    for t in range(z.trail_end - 1, end - 1, -1):
        kind, index, old = st.trail[t, 0], st.trail[t, 1], st.trail[t, 2]
        if kind == LEAST:
            st.least[index] = old
        elif kind == FLOOR:
            st.floor[index] = old
        else:
            st.offset[index] = -1
            for e in range(c.at[index], c.at[index + 1]):
                st.total[c.sections[e]] += c.size[index]
    for t in range(end, z.trail_end):
        if st.trail[t, 0] == FLOOR:
            k = int(st.trail[t, 1])
            if st.total[k] > 0:
                st.slack[k] = (
                    room(c, int(z.capacity), k, int(st.floor[k])) - st.total[k]
                )
    z.trail_end = end


@compiled_in_place
def push_up(c: BufferColumns, st: SkylineState, i: int) -> bool:
    """Forbid buffer i its minimum offset; whether another one is possible.

    It then lies above one of its unplaced neighbours.
    """
    least = HIGH
    for e in range(c.near_at[i], c.near_at[i + 1]):
        j = c.near[e]
        if st.offset[j] < 0:
            least = min(least, int(st.least[j] + c.size[j]))
    if least == HIGH:
        st.scalars[0].failed_section = -1
        return False
    if not raise_least(c, st, i, least):
        st.scalars[0].num_dirty = 0
        st.scalars[0].stamp += 1
        return False
    return settle(c, st)

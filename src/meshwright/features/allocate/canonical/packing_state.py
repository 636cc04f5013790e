"""The state of a search for a packing: arrays that compiled functions change in place.

Every placement is recorded, so that it can be undone.
"""

from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from meshwright.features.allocate.problem.sections import BufferColumns
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled_in_place

FOUND, NONE, OPEN = 1, 0, 2
"""Outcomes: a packing, a proof that there is none, the limit of nodes."""

HIGH = 2**62
CHOICE, PARTS = 0, 1  # kinds of frames
ENTER, SUCCESS, FAIL = 0, 1, 2  # what the top frame hears
LEAST, FLOOR, PLACED = 0, 1, 2  # kinds of entries of a trail
DECAY = 1.02


def integers(*names: str) -> np.dtype[Any]:
    """The type of a record of whole numbers, which compiled code reads by name."""
    return np.dtype([(name, np.int64) for name in names], align=True)


SCALARS = integers(
    "top", "signal", "depth", "trail_end", "member_end", "part_end", "nodes",
    "fails", "stamp", "given_up",
)  # fmt: skip
"""Whole numbers of a state: ends of its stacks, and counts."""

FRAME = integers(
    "kind", "low", "highest", "start", "length", "last", "rank", "mark", "hatless",
    "entered", "failures", "first_part", "num_parts", "next_part",
)  # fmt: skip
"""A frame of the stack; the last three fields are those of a frame of parts."""


class FitVerdict(Enum):
    """The answer to the question whether a packing within a capacity exists."""

    FOUND = FOUND
    NONE = NONE
    OPEN = OPEN


class PackingState(NamedTuple):
    """The whole state of a search, over n buffers and s sections.

    offset: [n] offsets of placed buffers, -1 for others. least: [n] minimum offsets.
    floor, total: [s] least minimum offset, and sum of the sizes, of unplaced buffers.
    cuts: [s] number of unplaced buffers that continue into the next section.
    failed: [s] weights of failures. frames: the stack of the search.
    key, order: numbers and letters that sort the buffers, see `canonical.new_state`.
    placed, placed_marks: buffers in the order of their placement, and the ends of the
        trail before each.
    trail: [t, 3] kind, index and old value of all that placements have overwritten.
    features: the last input of the trees that call a frame hopeless.
    """

    scalars: Any
    bump: Floats
    capacity: Ints
    offset: Ints
    least: Ints
    floor: Ints
    total: Ints
    cuts: Ints
    stamp: Ints
    touched: Ints
    failed: Floats
    key: Floats
    order: Ints
    frames: Any
    placed: Ints
    placed_marks: Ints
    trail: Ints
    members: Ints
    parts: Ints
    features: Floats


@compiled_in_place
def lowest(c: BufferColumns, i: int, offset: int) -> int:
    """The lowest aligned offset, not below `offset`, where buffer i meets no fixed one."""
    align = c.align[i]
    offset = -(-offset // align) * align
    for e in range(c.block_at[i], c.block_at[i + 1]):
        if offset + c.size[i] <= c.block_low[e]:
            break
        if offset < c.block_high[e]:
            offset = -(-c.block_high[e] // align) * align
    return offset


@compiled_in_place
def floor_of(c: BufferColumns, offset: Ints, least: Ints, k: int) -> int:
    """The least minimum offset among the unplaced buffers of section k.

    offset, least: offset of each placed buffer, -1 for others, and minimum offsets.
    """
    floor = HIGH
    for e in range(c.of_at[k], c.of_at[k + 1]):
        i = c.of[e]
        if offset[i] < 0 and least[i] < floor:
            floor = int(least[i])
    return floor


@compiled_in_place
def note(trail: Ints, scalars: Any, kind: int, index: int, old: int) -> None:
    """Record an old value, to be restored when the search backtracks."""
    end = scalars.trail_end
    trail[end, 0], trail[end, 1], trail[end, 2] = kind, index, old
    scalars.trail_end = end + 1


@compiled_in_place
def place(c: BufferColumns, st: PackingState, i: int, offset: int) -> bool:
    """Place buffer i, and raise its neighbours' minimum offsets; whether all may fit."""
    z = st.scalars[0]
    st.placed[z.depth] = i
    st.placed_marks[z.depth] = z.trail_end
    z.depth += 1
    z.stamp += 1
    st.offset[i] = offset
    num_touched = 0
    for e in range(c.at[i], c.at[i + 1]):
        k = c.sections[e]
        st.total[k] -= c.size[i]
        st.stamp[k] = z.stamp
        st.touched[num_touched] = k
        num_touched += 1
    for k in range(c.first[i], c.last[i]):
        st.cuts[k] -= 1
    top = offset + c.size[i]
    fits = top <= st.capacity[0]
    for e in range(c.near_at[i], c.near_at[i + 1]):
        j = c.near[e]
        if st.offset[j] >= 0 or st.least[j] >= top:
            continue
        note(st.trail, z, LEAST, j, int(st.least[j]))
        st.least[j] = lowest(c, j, top)
        fits = fits and st.least[j] + c.size[j] <= st.capacity[0]
        for g in range(c.at[j], c.at[j + 1]):
            k = c.sections[g]
            if st.stamp[k] != z.stamp:
                st.stamp[k] = z.stamp
                st.touched[num_touched] = k
                num_touched += 1
    if not fits:
        return False
    for t in range(num_touched):
        k = st.touched[t]
        note(st.trail, z, FLOOR, k, int(st.floor[k]))
        st.floor[k] = floor_of(c, st.offset, st.least, k)
        if st.total[k] > 0 and st.total[k] > room(
            c, st.capacity[0], k, int(st.floor[k])
        ):
            return False
    return True


@compiled_in_place
def room(c: BufferColumns, capacity: int, k: int, floor: int) -> int:
    """The number of bytes of section k above `floor` that no fixed buffer uses."""
    room = capacity - floor
    for e in range(c.used_at[k], c.used_at[k + 1]):
        low, high = max(floor, c.used_low[e]), min(c.used_high[e], capacity)
        if high > low:
            room -= high - low
    return room


@compiled_in_place
def age(weights: Floats, bump: Floats) -> None:
    """Raise what the next failure adds to a weight; rescale all before they overflow."""
    bump[0] *= DECAY
    if bump[0] > 1e100:
        for k in range(len(weights)):
            weights[k] *= 1e-100
        bump[0] *= 1e-100


@compiled_in_place
def undo(c: BufferColumns, st: PackingState, depth: int) -> None:
    """Undo placements until only the first `depth` are left."""
    z = st.scalars[0]
    while z.depth > depth:
        z.depth -= 1
        d = z.depth
        i = st.placed[d]
        while z.trail_end > st.placed_marks[d]:
            z.trail_end -= 1
            t = z.trail_end
            values = st.least if st.trail[t, 0] == LEAST else st.floor
            values[st.trail[t, 1]] = st.trail[t, 2]
        for e in range(c.at[i], c.at[i + 1]):
            st.total[c.sections[e]] += c.size[i]
        for k in range(c.first[i], c.last[i]):
            st.cuts[k] += 1
        st.offset[i] = -1

"""The state of a search for a packing: arrays that compiled functions change in place.

Every placement is recorded, so that it can be undone.
"""

from enum import Enum
from typing import NamedTuple

from meshwright.features.allocate.problem.sections import BufferColumns
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled_in_place

FOUND, NONE, OPEN = 1, 0, 2
"""Outcomes: a packing, a proof that there is none, the limit of nodes."""

HIGH = 2**62
CHOICE, PARTS = 0, 1  # kinds of frames
ENTER, SUCCESS, FAIL = 0, 1, 2  # what the top frame hears
DECAY = 1.02

# scalars of a state
TOP, SIGNAL, DEPTH, OFFSET_END, FLOOR_END, MEMBER_END, PART_END = range(7)
NODES, FAILS, STAMP, GIVEN_UP = 7, 8, 9, 10
# columns of a frame
KIND, LOW, HIGHEST, START, LENGTH, LAST, RANK, MARK, HATLESS = range(9)
ENTERED, FAILURES = 9, 10
FRAME_COLUMNS = 11
FIRST_PART, NUM_PARTS, NEXT_PART = START, LENGTH, LAST  # of a frame of parts


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
    placed: buffers in the order of their placement. trail_*: values that placements have
        overwritten.
    features: the last input of the trees that call a frame hopeless.
    """

    scalars: Ints
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
    frames: Ints
    placed: Ints
    placed_marks: Ints
    trail_buffer: Ints
    trail_least: Ints
    trail_section: Ints
    trail_floor: Ints
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
def refloor(c: BufferColumns, st: PackingState, k: int) -> None:
    """Recompute the least minimum offset among the unplaced buffers of section k."""
    floor = HIGH
    for e in range(c.of_at[k], c.of_at[k + 1]):
        i = c.of[e]
        if st.offset[i] < 0 and st.least[i] < floor:
            floor = st.least[i]
    st.floor[k] = floor


@compiled_in_place
def place(c: BufferColumns, st: PackingState, i: int, offset: int) -> bool:
    """Place buffer i, and raise its neighbours' minimum offsets; whether all may fit."""
    z = st.scalars
    st.placed[z[DEPTH]] = i
    st.placed_marks[z[DEPTH], 0] = z[OFFSET_END]
    st.placed_marks[z[DEPTH], 1] = z[FLOOR_END]
    z[DEPTH] += 1
    z[STAMP] += 1
    st.offset[i] = offset
    num_touched = 0
    for e in range(c.at[i], c.at[i + 1]):
        k = c.sections[e]
        st.total[k] -= c.size[i]
        st.stamp[k] = z[STAMP]
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
        st.trail_buffer[z[OFFSET_END]] = j
        st.trail_least[z[OFFSET_END]] = st.least[j]
        z[OFFSET_END] += 1
        st.least[j] = lowest(c, j, top)
        fits = fits and st.least[j] + c.size[j] <= st.capacity[0]
        for g in range(c.at[j], c.at[j + 1]):
            k = c.sections[g]
            if st.stamp[k] != z[STAMP]:
                st.stamp[k] = z[STAMP]
                st.touched[num_touched] = k
                num_touched += 1
    if not fits:
        return False
    for t in range(num_touched):
        k = st.touched[t]
        st.trail_section[z[FLOOR_END]] = k
        st.trail_floor[z[FLOOR_END]] = st.floor[k]
        z[FLOOR_END] += 1
        refloor(c, st, k)
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
def undo(c: BufferColumns, st: PackingState, depth: int) -> None:
    """Undo placements until only the first `depth` are left."""
    z = st.scalars
    while z[DEPTH] > depth:
        z[DEPTH] -= 1
        d = z[DEPTH]
        i = st.placed[d]
        while z[FLOOR_END] > st.placed_marks[d, 1]:
            z[FLOOR_END] -= 1
            st.floor[st.trail_section[z[FLOOR_END]]] = st.trail_floor[z[FLOOR_END]]
        while z[OFFSET_END] > st.placed_marks[d, 0]:
            z[OFFSET_END] -= 1
            st.least[st.trail_buffer[z[OFFSET_END]]] = st.trail_least[z[OFFSET_END]]
        for e in range(c.at[i], c.at[i + 1]):
            st.total[c.sections[e]] += c.size[i]
        for k in range(c.first[i], c.last[i]):
            st.cuts[k] += 1
        st.offset[i] = -1

"""Depth-first search over canonical packings, compiled (after MiniMalloc, Moffitt 2023).

Every packing can be pushed down until each buffer lies at the lowest offset that the
buffers below it leave. The search places buffers in the order of their offsets, ties in a
given order, each at that offset, so that it meets one packing of each class:

- A buffer's minimum offset only rises. In each section the least minimum offset of the
  unplaced buffers plus the sum of their sizes must stay within the capacity.
- Dominance: no buffer is placed at or above the top that another one would have at its
  minimum offset, for that other one could then move down.
- If no unplaced buffer is live together with the buffer placed last and the rest cannot
  be packed, other offsets of that buffer do not help (hatless pruning).
- Where no unplaced buffer crosses a point in time, both sides are packed independently.
  The side whose packing has failed most often so far comes first.

The search keeps its stack in arrays, so that it can stop after any number of nodes and
go on later. `PackingState` holds the arrays, `run` advances them.
"""

from typing import NamedTuple

import numpy as np

from meshwright.search.allocation.sections import BufferColumns
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled_in_place

FOUND, NONE, OPEN = 1, 0, 2
"""Outcomes: a packing, a proof that there is none, the limit of nodes."""

_HIGH = 2**62
_CHOICE, _PARTS = 0, 1  # kinds of frames
_ENTER, _SUCCESS, _FAIL = 0, 1, 2  # what the top frame hears
_DECAY = 1.02

# scalars of a state
_TOP, _SIGNAL, _DEPTH, _OFFSET_END, _FLOOR_END, _MEMBER_END, _PART_END = range(7)
NODES, FAILS, STAMP = 7, 8, 9
# columns of a frame
_KIND, _LOW, _HIGHEST, _START, _LENGTH, _LAST, _RANK, _MARK, _HATLESS = range(9)
_FIRST_PART, _NUM_PARTS, _NEXT_PART = _START, _LENGTH, _LAST  # of a frame of parts


class PackingState(NamedTuple):
    """All that the search knows, [n] buffers and [s] sections.

    offset: [n] offsets of placed buffers, -1 of others. least: [n] minimum offsets.
    floor, total, cuts: [s] least minimum offset and sum of sizes of unplaced buffers;
    number of unplaced buffers that cross from a section to the next. failed: [s] weights
    of failures. keys: [3, n] order of buffers, best first. frames: the stack. placed:
    buffers in order of placement; the trails record what a placement has changed.
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


def new_state(
    columns: BufferColumns, capacity: int, order: str, noise: Floats
) -> PackingState:
    """The state before the first node.

    order: letters of the static order, each with the greatest first: W lifetime, A area,
    T total of the fullest section, S size. noise: [n] factors of the first letter.
    """
    n, s = len(columns.size), len(columns.of_at) - 1
    depth = 3 * n + 8
    least = np.zeros(n, np.int64)
    state = PackingState(
        scalars=np.zeros(10, np.int64),
        bump=np.ones(1),
        capacity=np.array([capacity], np.int64),
        offset=np.full(n, -1, np.int64),
        least=least,
        floor=np.zeros(s, np.int64),
        total=np.zeros(s, np.int64),
        cuts=np.zeros(s + 1, np.int64),
        stamp=np.zeros(s, np.int64),
        touched=np.zeros(s, np.int64),
        failed=np.zeros(s),
        key=noise.astype(np.float64),
        order=np.array(["WATS".index(c) for c in order], np.int64),
        frames=np.zeros((depth, 9), np.int64),
        placed=np.zeros(n, np.int64),
        placed_marks=np.zeros((n + 1, 2), np.int64),
        trail_buffer=np.empty(len(columns.near) + 1, np.int64),
        trail_least=np.empty(len(columns.near) + 1, np.int64),
        trail_section=np.empty((n + 1) * (s + 1), np.int64),
        trail_floor=np.empty((n + 1) * (s + 1), np.int64),
        members=np.empty((n + 2) * (n + 2), np.int64),
        parts=np.empty(((n + 2) * (s + 2), 4), np.int64),
    )
    _begin(columns, state)
    return state


@compiled_in_place
def _begin(c: BufferColumns, st: PackingState) -> None:
    """Sums of the sections, first minimum offsets, and the frame of the root."""
    n, s = len(c.size), len(c.of_at) - 1
    for i in range(n):
        st.least[i] = _lowest(c, i, 0)
        for e in range(c.at[i], c.at[i + 1]):
            st.total[c.sections[e]] += c.size[i]
        for k in range(c.first[i], c.last[i]):
            st.cuts[k] += 1
    for k in range(s):
        _refloor(c, st, k)
    for i in range(n):
        st.members[i] = i
    st.scalars[_MEMBER_END] = n
    _push_parts(c, st, 0, s, 0, n, 0)
    st.scalars[_SIGNAL] = _ENTER


@compiled_in_place
def _lowest(c: BufferColumns, i: int, offset: int) -> int:
    """The lowest offset of buffer i from `offset` on that is aligned and not blocked."""
    align = c.align[i]
    offset = -(-offset // align) * align
    for e in range(c.block_at[i], c.block_at[i + 1]):
        if offset + c.size[i] <= c.block_low[e]:
            break
        if offset < c.block_high[e]:
            offset = -(-c.block_high[e] // align) * align
    return offset


@compiled_in_place
def _refloor(c: BufferColumns, st: PackingState, k: int) -> None:
    """Set the floor of section k to the least minimum offset of its unplaced buffers."""
    floor = _HIGH
    for e in range(c.of_at[k], c.of_at[k + 1]):
        i = c.of[e]
        if st.offset[i] < 0 and st.least[i] < floor:
            floor = st.least[i]
    st.floor[k] = floor


@compiled_in_place
def _place(c: BufferColumns, st: PackingState, i: int, offset: int) -> bool:
    """Place buffer i, raise minimum offsets and floors; whether the rest may fit."""
    z = st.scalars
    st.placed[z[_DEPTH]] = i
    st.placed_marks[z[_DEPTH], 0] = z[_OFFSET_END]
    st.placed_marks[z[_DEPTH], 1] = z[_FLOOR_END]
    z[_DEPTH] += 1
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
        st.trail_buffer[z[_OFFSET_END]] = j
        st.trail_least[z[_OFFSET_END]] = st.least[j]
        z[_OFFSET_END] += 1
        st.least[j] = _lowest(c, j, top)
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
        st.trail_section[z[_FLOOR_END]] = k
        st.trail_floor[z[_FLOOR_END]] = st.floor[k]
        z[_FLOOR_END] += 1
        _refloor(c, st, k)
        if st.total[k] > 0 and st.total[k] > _room(c, st, k, int(st.floor[k])):
            return False
    return True


@compiled_in_place
def _room(c: BufferColumns, st: PackingState, k: int, floor: int) -> int:
    """Bytes of section k from `floor` to the capacity that no fixed buffer uses."""
    room = st.capacity[0] - floor
    for e in range(c.used_at[k], c.used_at[k + 1]):
        low, high = max(floor, c.used_low[e]), min(c.used_high[e], st.capacity[0])
        if high > low:
            room -= high - low
    return room


@compiled_in_place
def _undo(c: BufferColumns, st: PackingState, depth: int) -> None:
    """Take placements back until `depth` are left."""
    z = st.scalars
    while z[_DEPTH] > depth:
        z[_DEPTH] -= 1
        d = z[_DEPTH]
        i = st.placed[d]
        while z[_FLOOR_END] > st.placed_marks[d, 1]:
            z[_FLOOR_END] -= 1
            st.floor[st.trail_section[z[_FLOOR_END]]] = st.trail_floor[z[_FLOOR_END]]
        while z[_OFFSET_END] > st.placed_marks[d, 0]:
            z[_OFFSET_END] -= 1
            st.least[st.trail_buffer[z[_OFFSET_END]]] = st.trail_least[z[_OFFSET_END]]
        for e in range(c.at[i], c.at[i + 1]):
            st.total[c.sections[e]] += c.size[i]
        for k in range(c.first[i], c.last[i]):
            st.cuts[k] += 1
        st.offset[i] = -1


@compiled_in_place
def _above(
    c: BufferColumns, st: PackingState, low: int, high: int, offset: int
) -> bool:
    """Whether sections low to high - 1 still fit if nothing more lies below `offset`."""
    for k in range(low, high):
        is_lower = st.total[k] > 0 and st.floor[k] < offset
        if is_lower and st.total[k] > _room(c, st, k, offset):
            return False
    return True


@compiled_in_place
def _next_choice(c: BufferColumns, st: PackingState, f: int) -> int:
    """The position in the members of the next buffer to try; -1 none, -2 all placed."""
    start, length = st.frames[f, _START], st.frames[f, _LENGTH]
    last, rank = st.frames[f, _LAST], st.frames[f, _RANK]
    best, best_offset, dominated, unplaced = -1, _HIGH, _HIGH, 0
    for p in range(length):
        i = st.members[start + p]
        if st.offset[i] >= 0:
            continue
        unplaced += 1
        least = st.least[i]
        dominated = min(dominated, least + c.size[i])
        if least < best_offset and (least > last or (least == last and p > rank)):
            best, best_offset = p, least
    if unplaced == 0:
        return -2
    return best if best_offset < dominated else -1


@compiled_in_place
def _split(c: BufferColumns, st: PackingState, f: int, i: int) -> bool:
    """Push a frame of parts if placing buffer i has cut the range of frame f."""
    is_cut = False
    for k in range(c.first[i], c.last[i]):
        is_cut = is_cut or st.cuts[k] == 0
    if is_cut:
        low, high = st.frames[f, _LOW], st.frames[f, _HIGHEST]
        _push_parts(
            c, st, low, high, st.frames[f, _START], st.frames[f, _LENGTH], f + 1
        )
    return is_cut


@compiled_in_place
def _push_parts(  # noqa: PLR0913  a record of the range would be built at each node
    c: BufferColumns,
    st: PackingState,
    low: int,
    high: int,
    start: int,
    length: int,
    f: int,
) -> None:
    """Push a frame with the independent parts of sections low to high - 1."""
    z = st.scalars
    first = z[_PART_END]
    number = 0
    member_mark = z[_MEMBER_END]
    begin = low
    for k in range(low, high):
        if k + 1 < high and st.cuts[k] != 0:
            continue
        part_start = z[_MEMBER_END]
        for p in range(start, start + length):
            i = st.members[p]
            if st.offset[i] < 0 and begin <= c.first[i] <= k:
                st.members[z[_MEMBER_END]] = i
                z[_MEMBER_END] += 1
        if z[_MEMBER_END] > part_start:
            row = first + number
            st.parts[row, 0], st.parts[row, 1] = begin, k + 1
            st.parts[row, 2], st.parts[row, 3] = (
                part_start,
                z[_MEMBER_END] - part_start,
            )
            _sort_members(c, st, part_start, z[_MEMBER_END])
            number += 1
        begin = k + 1
    _sort_parts(st, first, number)
    z[_PART_END] = first + number
    st.frames[f, _KIND], st.frames[f, _LOW], st.frames[f, _HIGHEST] = _PARTS, low, high
    st.frames[f, _FIRST_PART], st.frames[f, _NUM_PARTS] = first, number
    st.frames[f, _NEXT_PART], st.frames[f, _RANK] = 0, member_mark
    st.frames[f, _MARK] = z[_DEPTH]
    z[_TOP] = f


@compiled_in_place
def _before(c: BufferColumns, st: PackingState, a: int, b: int) -> bool:
    """Whether buffer a comes before buffer b in the static order."""
    for p in range(len(st.order)):
        x, y = _letter(c, st, a, st.order[p]), _letter(c, st, b, st.order[p])
        if p == 0:
            x, y = x * st.key[a], y * st.key[b]
        if x != y:
            return x > y
    return a < b


@compiled_in_place
def _letter(c: BufferColumns, st: PackingState, i: int, letter: int) -> float:
    if letter == 0:
        return float(c.duration[i])
    if letter == 1:
        return float(c.duration[i]) * float(c.size[i])
    if letter == 3:
        return float(c.size[i])
    total = 0
    for e in range(c.at[i], c.at[i + 1]):
        total = max(total, st.total[c.sections[e]])
    return float(total)


@compiled_in_place
def _sort_members(c: BufferColumns, st: PackingState, start: int, end: int) -> None:
    """Sort members by the static order, with the totals of now (insertion sort)."""
    for p in range(start + 1, end):
        i = st.members[p]
        q = p
        while q > start and _before(c, st, i, st.members[q - 1]):
            st.members[q] = st.members[q - 1]
            q -= 1
        st.members[q] = i


@compiled_in_place
def _sort_parts(st: PackingState, first: int, number: int) -> None:
    """Sort parts, most failures first, ties from left to right."""
    for p in range(first + 1, first + number):
        q = p
        while q > first and _weight(st, q) > _weight(st, q - 1):
            for x in range(4):
                st.parts[q, x], st.parts[q - 1, x] = st.parts[q - 1, x], st.parts[q, x]
            q -= 1


@compiled_in_place
def _weight(st: PackingState, row: int) -> float:
    most = 0.0
    for k in range(st.parts[row, 0], st.parts[row, 1]):
        most = max(most, st.failed[k])
    return most


@compiled_in_place
def _blame(st: PackingState, row: int) -> None:
    """Add to the weights of the sections of a part that has no packing."""
    for k in range(st.parts[row, 0], st.parts[row, 1]):
        st.failed[k] += st.bump[0]
    st.bump[0] *= _DECAY
    if st.bump[0] > 1e100:
        for k in range(len(st.failed)):
            st.failed[k] *= 1e-100
        st.bump[0] *= 1e-100


@compiled_in_place
def _step_parts(st: PackingState, f: int, signal: int) -> int:
    """Go on with the next part of frame f; the signal for the frame on top."""
    z = st.scalars
    first, number = st.frames[f, _FIRST_PART], st.frames[f, _NUM_PARTS]
    turn = st.frames[f, _NEXT_PART]
    if signal == _FAIL or turn == number:
        if signal == _FAIL:
            _blame(st, first + turn - 1)
        z[_PART_END] = first
        z[_MEMBER_END] = st.frames[f, _RANK]
        z[_TOP] = f - 1
        return _FAIL if signal == _FAIL else _SUCCESS
    st.frames[f, _NEXT_PART] = turn + 1
    row = first + turn
    g = f + 1
    st.frames[g, _KIND] = _CHOICE
    st.frames[g, _LOW], st.frames[g, _HIGHEST] = st.parts[row, 0], st.parts[row, 1]
    st.frames[g, _START], st.frames[g, _LENGTH] = st.parts[row, 2], st.parts[row, 3]
    st.frames[g, _LAST], st.frames[g, _RANK] = -1, -1
    st.frames[g, _MARK], st.frames[g, _HATLESS] = z[_DEPTH], 0
    z[_TOP] = g
    return _ENTER


@compiled_in_place
def _is_hatless(c: BufferColumns, st: PackingState, i: int) -> bool:
    unplaced = 0
    for e in range(c.near_at[i], c.near_at[i + 1]):
        unplaced += st.offset[c.near[e]] < 0
    return unplaced == 0


@compiled_in_place
def _step_choice(c: BufferColumns, st: PackingState, f: int, signal: int) -> int:
    """Place the next buffer of frame f; the signal for the frame on top."""
    z = st.scalars
    if signal == _SUCCESS:
        z[_TOP] = f - 1
        return _SUCCESS
    if signal == _FAIL:
        z[FAILS] += 1
        _undo(c, st, st.frames[f, _MARK])
        if st.frames[f, _HATLESS]:
            z[_TOP] = f - 1
            return _FAIL
    while True:
        p = _next_choice(c, st, f)
        if p < 0:
            z[_TOP] = f - 1
            return _SUCCESS if p == -2 else _FAIL
        i = int(st.members[st.frames[f, _START] + p])
        offset = int(st.least[i])
        st.frames[f, _LAST], st.frames[f, _RANK] = offset, p
        if not _above(c, st, st.frames[f, _LOW], st.frames[f, _HIGHEST], offset):
            z[_TOP] = f - 1
            return _FAIL
        z[NODES] += 1
        if _place(c, st, i, offset):
            break
        _undo(c, st, st.frames[f, _MARK])
    st.frames[f, _HATLESS] = 1 if _is_hatless(c, st, i) else 0
    if not _split(c, st, f, i):
        g = f + 1
        for x in range(9):
            st.frames[g, x] = st.frames[f, x]
        st.frames[g, _MARK], st.frames[g, _HATLESS] = z[_DEPTH], 0
        z[_TOP] = g
    return _ENTER


@compiled_in_place
def run(c: BufferColumns, st: PackingState, most_nodes: int) -> int:
    """Advance the search by so many nodes, at most; FOUND, NONE or OPEN."""
    z = st.scalars
    end = z[NODES] + most_nodes
    while z[_TOP] >= 0:
        if z[NODES] >= end:
            return OPEN
        f = z[_TOP]
        if st.frames[f, _KIND] == _CHOICE:
            z[_SIGNAL] = _step_choice(c, st, f, z[_SIGNAL])
        else:
            z[_SIGNAL] = _step_parts(st, f, z[_SIGNAL])
    return FOUND if z[_SIGNAL] == _SUCCESS else NONE

"""Independent parts of a packing, which are packed one after another.

The problem is divided at each time that no unplaced buffer spans. The part whose packing
has failed most often so far comes first.
"""

from meshwright.features.allocate.canonical.packing_state import (
    CHOICE,
    ENTER,
    FAIL,
    PARTS,
    SUCCESS,
    PackingState,
    age,
)
from meshwright.features.allocate.problem.sections import BufferColumns
from meshwright.search.compiled import compiled_in_place


@compiled_in_place
def split(c: BufferColumns, st: PackingState, f: int, i: int) -> bool:
    """Divide the buffers of frame f if placing buffer i made them independent groups.

    Returns whether it did.
    """
    is_cut = False
    for k in range(c.first[i], c.last[i]):
        is_cut = is_cut or st.cuts[k] == 0
    if is_cut:
        low, high = st.frames[f].low, st.frames[f].highest
        push_parts(c, st, low, high, st.frames[f].start, st.frames[f].length, f + 1)
    return is_cut


@compiled_in_place
def push_parts(  # noqa: PLR0913  a record of the range would be built at each node
    c: BufferColumns,
    st: PackingState,
    low: int,
    high: int,
    start: int,
    length: int,
    f: int,
) -> None:
    """Push a frame with the independent parts of sections low to high - 1."""
    z = st.scalars[0]
    first = z.part_end
    number = 0
    member_mark = z.member_end
    begin = low
    for k in range(low, high):
        if k + 1 < high and st.cuts[k] != 0:
            continue
        part_start = z.member_end
        for p in range(start, start + length):
            i = st.members[p]
            if st.offset[i] < 0 and begin <= c.first[i] <= k:
                st.members[z.member_end] = i
                z.member_end += 1
        if z.member_end > part_start:
            row = first + number
            st.parts[row, 0], st.parts[row, 1] = begin, k + 1
            st.parts[row, 2], st.parts[row, 3] = (
                part_start,
                z.member_end - part_start,
            )
            sort_members(c, st, part_start, z.member_end)
            number += 1
        begin = k + 1
    sort_parts(st, first, number)
    z.part_end = first + number
    st.frames[f].kind, st.frames[f].low, st.frames[f].highest = PARTS, low, high
    st.frames[f].first_part, st.frames[f].num_parts = first, number
    st.frames[f].next_part, st.frames[f].rank = 0, member_mark
    st.frames[f].mark = z.depth
    z.top = f


@compiled_in_place
def before(c: BufferColumns, st: PackingState, a: int, b: int) -> bool:
    """Whether buffer a comes before buffer b in the static order."""
    for p in range(len(st.order)):
        x, y = letter(c, st, a, st.order[p]), letter(c, st, b, st.order[p])
        if p == 0:
            x, y = x * st.key[a], y * st.key[b]
        if x != y:
            return x > y
    return a < b


@compiled_in_place
def letter(c: BufferColumns, st: PackingState, i: int, letter: int) -> float:
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
def sort_members(c: BufferColumns, st: PackingState, start: int, end: int) -> None:
    """Sort the buffers of a frame by the static order, with the sections' present sums."""
    for p in range(start + 1, end):
        i = st.members[p]
        q = p
        while q > start and before(c, st, i, st.members[q - 1]):
            st.members[q] = st.members[q - 1]
            q -= 1
        st.members[q] = i


@compiled_in_place
def sort_parts(st: PackingState, first: int, number: int) -> None:
    """Sort parts by their number of failures, most first; ties from left to right."""
    for p in range(first + 1, first + number):
        q = p
        while q > first and weight(st, q) > weight(st, q - 1):
            for x in range(4):
                st.parts[q, x], st.parts[q - 1, x] = st.parts[q - 1, x], st.parts[q, x]
            q -= 1


@compiled_in_place
def weight(st: PackingState, row: int) -> float:
    most = 0.0
    for k in range(st.parts[row, 0], st.parts[row, 1]):
        most = max(most, st.failed[k])
    return most


@compiled_in_place
def blame(st: PackingState, row: int) -> None:
    """Raise the failure weights of the sections of a part that has no packing."""
    for k in range(st.parts[row, 0], st.parts[row, 1]):
        st.failed[k] += st.bump[0]
    age(st.failed, st.bump)


@compiled_in_place
def step_parts(st: PackingState, f: int, signal: int) -> int:
    """Begin the next part of frame f; returns ENTER, SUCCESS or FAIL for the top frame."""
    z = st.scalars[0]
    first, number = st.frames[f].first_part, st.frames[f].num_parts
    turn = st.frames[f].next_part
    if signal == FAIL or turn == number:
        if signal == FAIL:
            blame(st, first + turn - 1)
        z.part_end = first
        z.member_end = st.frames[f].rank
        z.top = f - 1
        return FAIL if signal == FAIL else SUCCESS
    st.frames[f].next_part = turn + 1
    row = first + turn
    g = f + 1
    st.frames[g].kind = CHOICE
    st.frames[g].low, st.frames[g].highest = st.parts[row, 0], st.parts[row, 1]
    st.frames[g].start, st.frames[g].length = st.parts[row, 2], st.parts[row, 3]
    st.frames[g].last, st.frames[g].rank = -1, -1
    st.frames[g].mark, st.frames[g].hatless = z.depth, 0
    st.frames[g].entered, st.frames[g].failures = z.nodes, 0
    z.top = g
    return ENTER

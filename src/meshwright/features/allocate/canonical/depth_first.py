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

import numpy as np

from meshwright.features.allocate.canonical.backtracking_trees import (
    NUM_FEATURES,
    BacktrackingTrees,
    is_hopeless,
)
from meshwright.features.allocate.canonical.independent_parts import (
    push_parts,
    split,
    step_parts,
)
from meshwright.features.allocate.canonical.packing_state import (
    CHOICE,
    ENTER,
    FAIL,
    FOUND,
    FRAME,
    HIGH,
    NONE,
    OPEN,
    SCALARS,
    SUCCESS,
    PackingState,
    floor_of,
    lowest,
    place,
    room,
    undo,
)
from meshwright.features.allocate.problem.sections import BufferColumns
from meshwright.search.arrays import Floats
from meshwright.search.compiled import compiled_in_place


def new_state(
    columns: BufferColumns, capacity: int, order: str, noise: Floats
) -> PackingState:
    """The state of a search before its first node.

    order: letters of the static order of buffers, each with the greatest value first: W
        lifetime, A area (lifetime times size), T bytes of its fullest section, S size.
    noise: [n] random factors of the first letter's values.
    """
    n, s = len(columns.size), len(columns.of_at) - 1
    depth = 3 * n + 8
    state = PackingState(
        scalars=np.zeros(1, SCALARS),
        bump=np.ones(1),
        capacity=np.array([capacity], np.int64),
        offset=np.full(n, -1, np.int64),
        least=np.zeros(n, np.int64),
        floor=np.zeros(s, np.int64),
        total=np.zeros(s, np.int64),
        cuts=np.zeros(s + 1, np.int64),
        stamp=np.zeros(s, np.int64),
        touched=np.zeros(s, np.int64),
        failed=np.zeros(s),
        key=noise.astype(np.float64),
        order=np.array(["WATS".index(c) for c in order], np.int64),
        frames=np.zeros(depth, FRAME),
        placed=np.zeros(n, np.int64),
        placed_marks=np.zeros(n + 1, np.int64),
        trail=np.empty((len(columns.near) + 1 + (n + 1) * (s + 1), 3), np.int64),
        members=np.empty((n + 2) * (n + 2), np.int64),
        parts=np.empty(((n + 2) * (s + 2), 4), np.int64),
        features=np.zeros(NUM_FEATURES),
    )
    begin(columns, state)
    return state


@compiled_in_place
def begin(c: BufferColumns, st: PackingState) -> None:
    """Fill in section sums and minimum offsets, and push the first frame."""
    n, s = len(c.size), len(c.of_at) - 1
    for i in range(n):
        st.least[i] = lowest(c, i, 0)
        for e in range(c.at[i], c.at[i + 1]):
            st.total[c.sections[e]] += c.size[i]
        for k in range(c.first[i], c.last[i]):
            st.cuts[k] += 1
    for k in range(s):
        st.floor[k] = floor_of(c, st.offset, st.least, k)
    for i in range(n):
        st.members[i] = i
    st.scalars[0].member_end = n
    push_parts(c, st, 0, s, 0, n, 0)
    st.scalars[0].signal = ENTER


@compiled_in_place
def above(c: BufferColumns, st: PackingState, low: int, high: int, offset: int) -> bool:
    """Whether the buffers of some sections still fit if none is placed below `offset`.

    The sections are low to high - 1.
    """
    for k in range(low, high):
        is_lower = st.total[k] > 0 and st.floor[k] < offset
        if is_lower and st.total[k] > room(c, st.capacity[0], k, offset):
            return False
    return True


@compiled_in_place
def next_choice(c: BufferColumns, st: PackingState, f: int) -> int:
    """The next buffer to try in frame f, as a position in its members.

    Returns -1 if no further choice can help, and -2 if all buffers are placed.
    """
    start, length = st.frames[f].start, st.frames[f].length
    last, rank = st.frames[f].last, st.frames[f].rank
    best, best_offset, dominated, unplaced = -1, HIGH, HIGH, 0
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
def is_hatless(c: BufferColumns, st: PackingState, i: int) -> bool:
    unplaced = 0
    for e in range(c.near_at[i], c.near_at[i + 1]):
        unplaced += st.offset[c.near[e]] < 0
    return unplaced == 0


@compiled_in_place
def step_choice(c: BufferColumns, st: PackingState, f: int, signal: int) -> int:
    """Place the next buffer of frame f; returns ENTER, SUCCESS or FAIL for the top frame.

    signal: SUCCESS if the frame above has just ended with a packing.
    """
    z = st.scalars[0]
    if signal == SUCCESS:
        z.top = f - 1
        return SUCCESS
    while True:
        p = next_choice(c, st, f)
        if p < 0:
            z.top = f - 1
            return SUCCESS if p == -2 else FAIL
        i = int(st.members[st.frames[f].start + p])
        offset = int(st.least[i])
        st.frames[f].last, st.frames[f].rank = offset, p
        if not above(c, st, st.frames[f].low, st.frames[f].highest, offset):
            z.top = f - 1
            return FAIL
        z.nodes += 1
        if place(c, st, i, offset):
            break
        undo(c, st, st.frames[f].mark)
    st.frames[f].hatless = 1 if is_hatless(c, st, i) else 0
    if not split(c, st, f, i):
        g = f + 1
        st.frames[g] = st.frames[f]
        st.frames[g].mark, st.frames[g].hatless = z.depth, 0
        st.frames[g].entered, st.frames[g].failures = z.nodes, 0
        z.top = g
    return ENTER


@compiled_in_place
def take_back(c: BufferColumns, st: PackingState, f: int) -> bool:
    """Undo the last placement of frame f, which led to no packing.

    Returns whether another choice in the frame may succeed.
    """
    st.scalars[0].fails += 1
    st.frames[f].failures += 1
    undo(c, st, st.frames[f].mark)
    return st.frames[f].hatless == 0


@compiled_in_place
def run(
    c: BufferColumns, st: PackingState, trees: BacktrackingTrees, most_nodes: int
) -> int:
    """Advance the search by at most `most_nodes` nodes; returns FOUND, NONE or OPEN.

    With trees, frames that they call hopeless count as failed. NONE is then a proof only
    if the scalar GIVEN_UP, the number of such frames, is 0.
    """
    z = st.scalars[0]
    end = z.nodes + most_nodes
    while z.top >= 0:
        if z.nodes >= end:
            return OPEN
        f = z.top
        if st.frames[f].kind == CHOICE:
            if z.signal == FAIL and not take_back(c, st, f):
                z.top = f - 1
            elif z.signal == FAIL and is_hopeless(c, st, trees, f):
                z.given_up += 1
                z.top = f - 1
            else:
                z.signal = step_choice(c, st, f, z.signal)
        else:
            z.signal = step_parts(st, f, z.signal)
    return FOUND if z.signal == SUCCESS else NONE

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
    DEPTH,
    ENTER,
    ENTERED,
    FAIL,
    FAILS,
    FAILURES,
    FOUND,
    FRAME_COLUMNS,
    GIVEN_UP,
    HATLESS,
    HIGH,
    HIGHEST,
    KIND,
    LAST,
    LENGTH,
    LOW,
    MARK,
    MEMBER_END,
    NODES,
    NONE,
    OPEN,
    RANK,
    SIGNAL,
    START,
    SUCCESS,
    TOP,
    PackingState,
    lowest,
    place,
    refloor,
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
    least = np.zeros(n, np.int64)
    state = PackingState(
        scalars=np.zeros(11, np.int64),
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
        frames=np.zeros((depth, FRAME_COLUMNS), np.int64),
        placed=np.zeros(n, np.int64),
        placed_marks=np.zeros((n + 1, 2), np.int64),
        trail_buffer=np.empty(len(columns.near) + 1, np.int64),
        trail_least=np.empty(len(columns.near) + 1, np.int64),
        trail_section=np.empty((n + 1) * (s + 1), np.int64),
        trail_floor=np.empty((n + 1) * (s + 1), np.int64),
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
        refloor(c, st, k)
    for i in range(n):
        st.members[i] = i
    st.scalars[MEMBER_END] = n
    push_parts(c, st, 0, s, 0, n, 0)
    st.scalars[SIGNAL] = ENTER


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
    start, length = st.frames[f, START], st.frames[f, LENGTH]
    last, rank = st.frames[f, LAST], st.frames[f, RANK]
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
    z = st.scalars
    if signal == SUCCESS:
        z[TOP] = f - 1
        return SUCCESS
    while True:
        p = next_choice(c, st, f)
        if p < 0:
            z[TOP] = f - 1
            return SUCCESS if p == -2 else FAIL
        i = int(st.members[st.frames[f, START] + p])
        offset = int(st.least[i])
        st.frames[f, LAST], st.frames[f, RANK] = offset, p
        if not above(c, st, st.frames[f, LOW], st.frames[f, HIGHEST], offset):
            z[TOP] = f - 1
            return FAIL
        z[NODES] += 1
        if place(c, st, i, offset):
            break
        undo(c, st, st.frames[f, MARK])
    st.frames[f, HATLESS] = 1 if is_hatless(c, st, i) else 0
    if not split(c, st, f, i):
        g = f + 1
        for x in range(FRAME_COLUMNS):
            st.frames[g, x] = st.frames[f, x]
        st.frames[g, MARK], st.frames[g, HATLESS] = z[DEPTH], 0
        st.frames[g, ENTERED], st.frames[g, FAILURES] = z[NODES], 0
        z[TOP] = g
    return ENTER


@compiled_in_place
def take_back(c: BufferColumns, st: PackingState, f: int) -> bool:
    """Undo the last placement of frame f, which led to no packing.

    Returns whether another choice in the frame may succeed.
    """
    st.scalars[FAILS] += 1
    st.frames[f, FAILURES] += 1
    undo(c, st, st.frames[f, MARK])
    return st.frames[f, HATLESS] == 0


@compiled_in_place
def run(
    c: BufferColumns, st: PackingState, trees: BacktrackingTrees, most_nodes: int
) -> int:
    """Advance the search by at most `most_nodes` nodes; returns FOUND, NONE or OPEN.

    With trees, frames that they call hopeless count as failed. NONE is then a proof only
    if the scalar GIVEN_UP, the number of such frames, is 0.
    """
    z = st.scalars
    end = z[NODES] + most_nodes
    while z[TOP] >= 0:
        if z[NODES] >= end:
            return OPEN
        f = z[TOP]
        if st.frames[f, KIND] == CHOICE:
            if z[SIGNAL] == FAIL and not take_back(c, st, f):
                z[TOP] = f - 1
            elif z[SIGNAL] == FAIL and is_hopeless(c, st, trees, f):
                z[GIVEN_UP] += 1
                z[TOP] = f - 1
            else:
                z[SIGNAL] = step_choice(c, st, f, z[SIGNAL])
        else:
            z[SIGNAL] = step_parts(st, f, z[SIGNAL])
    return FOUND if z[SIGNAL] == SUCCESS else NONE

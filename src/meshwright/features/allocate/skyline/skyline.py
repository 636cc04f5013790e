"""Depth-first search that fills the section with the fewest buffers that can lie lowest.

A packing is pushed down if no buffer can be moved to a lower offset alone. Every packing
can be pushed down, so that the search looks for pushed-down packings only. It chooses a
buffer under which no unplaced buffer fits. In a pushed-down packing, this buffer lies
either at its minimum offset, or on top of an unplaced neighbour. The search first places
the buffer at its minimum offset. If that fails, it raises the minimum offset to the
lowest top of an unplaced neighbour. These two cases are all, so that the search is
complete.

The search chooses the buffer in the section that has the fewest candidates for its lowest
free bytes. A candidate leaves enough room for the section's other buffers. The number of
candidates is divided by the weight of the section's failures (dom/wdeg: Boussemart et
al., ECAI 2004). If hardly a byte is free, most sections have one or two candidates. The
search of `depth_first.py` cannot choose the section, since it places buffers in the order
of their offsets.
"""

import numpy as np

from meshwright.features.allocate.canonical.packing_state import (
    FOUND,
    NONE,
    OPEN,
    age,
)
from meshwright.features.allocate.problem.sections import BufferColumns
from meshwright.features.allocate.skyline.skyline_state import (
    SkylineState,
    push_up,
    put,
    restore,
    settle,
)
from meshwright.search.compiled import compiled_in_place


@compiled_in_place
def next_section(c: BufferColumns, st: SkylineState) -> int:
    """The section with the fewest buffers that can lie lowest, over its weight."""
    best, best_score = -1, np.inf
    for k in range(len(st.total)):
        if st.total[k] == 0:
            continue
        number = 0
        limit = st.floor[k] + st.slack[k]
        for e in range(c.of_at[k], c.of_at[k + 1]):
            i = c.of[e]
            number += st.offset[i] < 0 and st.least[i] <= limit
        score = number / (1.0 + st.weight[k] / st.bump[0]) if number > 1 else 0.0
        if score < best_score:
            best, best_score = k, score
            if number <= 1:
                break
    return best


@compiled_in_place
def next_buffer(c: BufferColumns, st: SkylineState, k: int) -> int:
    """A buffer under which no unplaced one fits, if possible the lowest of section k."""
    best = -1
    for e in range(c.of_at[k], c.of_at[k + 1]):
        i = c.of[e]
        if st.offset[i] >= 0 or st.least[i] != st.floor[k]:
            continue
        if best < 0 or st.key[i] > st.key[best]:
            best = i
    below = best
    while below >= 0:
        best, below = below, -1
        for e in range(c.near_at[best], c.near_at[best + 1]):
            j = c.near[e]
            if st.offset[j] < 0 and st.least[j] + c.size[j] <= st.least[best]:
                below = j
                break
    return best


@compiled_in_place
def is_full(c: BufferColumns, st: SkylineState) -> bool:
    """Whether the trail might not hold the changes of another node."""
    most = 2 * (len(c.near) + len(c.of) + len(c.size))
    return st.scalars[0].trail_end + most > len(st.trail)


@compiled_in_place
def advance_skyline(c: BufferColumns, st: SkylineState, most_nodes: int) -> int:
    """Advance the search by at most `most_nodes` nodes; returns FOUND, NONE or OPEN."""
    z = st.scalars[0]
    end = z.nodes + most_nodes
    if z.num_dirty and not settle(c, st):
        return NONE
    while z.nodes < end and not is_full(c, st):
        k = next_section(c, st)
        if k < 0:
            return FOUND
        fits = put(c, st, next_buffer(c, st, k))
        while not fits:
            blame_section(st)
            if z.depth == 0:
                return NONE
            z.depth -= 1
            restore(c, st, int(st.mark[z.depth]))
            fits = push_up(c, st, int(st.buffer[z.depth]))
            if z.depth == 0:
                z.trail_end = 0  # holds in every packing
    return OPEN


@compiled_in_place
def undo_all(c: BufferColumns, st: SkylineState) -> None:
    """Undo all placements; weights of failures, and what is proven, stay."""
    if st.scalars[0].depth > 0:
        st.scalars[0].depth = 0
        restore(c, st, int(st.mark[0]))


@compiled_in_place
def blame_section(st: SkylineState) -> None:
    """Raise the weight of the section that has failed."""
    k = st.scalars[0].failed_section
    if k < 0:
        return
    st.weight[k] += st.bump[0]
    age(st.weight, st.bump)

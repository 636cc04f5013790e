"""Propagation to the fixed point of one axis: the algorithm of `Propagator`, on arrays.

It makes the same checks in the same order as `Propagator`, so that both end in the same
state if each group is one node (tests/planner/columns/test_propagation.py). A group is
a class of equal ops. On a transformer of 32 layers it reaches 12 times as many states
per second, and 500 times as many on the symmetry-reduced graph
(benchmarks/search/propagation_speed.py).
"""

from typing import NamedTuple

import numpy as np

from meshwright.planner.columns.graph_columns import Columns
from meshwright.planner.columns.partial_values import (
    PartialCache,
    invalidate,
    is_partial,
    new_partial_cache,
)
from meshwright.planner.columns.state_cells import (
    Cells,
    can_scatter,
    dim_of,
    dim_on,
    has_factor,
    may_cut,
    num_cuts,
    num_groups,
    num_values,
    parts_of,
    span,
)
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place

CONFLICT, NO_CLAIM = -2, -1
"""Results of a claim in place of a factor.

CONFLICT: neighbours ask for two different factors. NO_CLAIM: they ask for none.
"""

FORWARD, BACKWARD = 0, 1
"""The two queues: groups whose operands have changed, and groups whose results have."""


class Worklist(NamedTuple):
    """Two queues of groups (classes of equal ops) to visit, and a cache.

    queues: ring buffers, [2, G].
    ends: position of the first entry, and number of entries, [2, 2].
    waiting: 1 for groups that are in a queue, [2, G]
    """

    queues: Ints
    ends: Ints
    waiting: Ints
    cache: PartialCache


def new_worklist(columns: Columns) -> Worklist:
    """Empty queues for the graph whose arrays are `columns`."""
    groups = len(columns.blocked)
    return Worklist(
        np.zeros((2, groups), np.int64),
        np.zeros((2, 2), np.int64),
        np.zeros((2, groups), np.int64),
        new_partial_cache(columns),
    )


@compiled_in_place
def cut(
    columns: Columns, cells: Cells, work: Worklist, group: int, axis: int, factor: int
) -> bool:
    """Split a factor of a group of equal ops along an axis, and propagate the split.

    The state `cells` is changed in place. False if the split is not legal.
    """
    if not may_cut(columns, cells, group, axis, factor):
        return False
    invalidate(work.cache)
    assign(columns, cells, work, group, axis, factor)
    while work.ends[FORWARD, 1] or work.ends[BACKWARD, 1]:
        which = FORWARD if work.ends[FORWARD, 1] else BACKWARD
        visit(columns, cells, work, pop(work, which), axis)
    return True


@compiled_in_place
def visit(
    columns: Columns, cells: Cells, work: Worklist, group: int, axis: int
) -> None:
    """Split a group of equal ops along the factor that its neighbours imply.

    Operands are asked first, then readers. Nothing happens if they imply different
    factors.
    """
    if cells[group, axis] >= 0 or (columns.blocked[group] >> axis) & 1:
        return
    factor = claim_forward(columns, cells, group, axis)
    if factor == NO_CLAIM:
        factor = claim_backward(columns, cells, group, axis)
        if factor != NO_CLAIM and scatter_result(columns, cells, work, group, axis):
            return
    if factor >= 0:
        assign(columns, cells, work, group, axis, factor)


@compiled_in_place
def claim_forward(columns: Columns, cells: Cells, group: int, axis: int) -> int:
    """The factor of a group of equal ops that its already split operands imply.

    NO_CLAIM if there is none, CONFLICT if there are several.
    """
    claimed, values = NO_CLAIM, num_values(columns)
    for operand in span(columns.operands_at, group):
        for at in span(columns.sources_at, operand):
            dim = dim_on(columns, cells, columns.sources[at], axis)
            if dim >= 0:
                place = columns.ports[values + operand] + dim
                claimed = add_claim(columns, cells, group, axis, place, claimed)
    return claimed


@compiled_in_place
def claim_backward(columns: Columns, cells: Cells, group: int, axis: int) -> int:
    """The factor of a group of equal ops that readers of its results ask to split.

    NO_CLAIM if there is none, CONFLICT if there are several.
    """
    claimed, groups = NO_CLAIM, num_groups(columns)
    requests = 2 * groups + num_values(columns)
    for value in span(columns.values_at, group):
        requested = cells[requests + value, axis]
        first = columns.ports[value]
        for dim in range(columns.ports[value + 1] - first):
            if (requested >> dim) & 1:
                claimed = add_claim(columns, cells, group, axis, first + dim, claimed)
    return claimed


@compiled_in_place
def add_claim(
    columns: Columns, cells: Cells, group: int, axis: int, place: int, claimed: int
) -> int:
    """Combine the factor claimed so far with the factor that one more dim implies.

    A dim that cannot be split changes nothing.
    place: row of the dim in `columns.extents`.
    claimed: the factor claimed so far, or NO_CLAIM or CONFLICT.
    """
    if claimed == CONFLICT:
        return CONFLICT
    for at in span(columns.names_at, place):
        factor = columns.names[at]
        whole = columns.sizes[columns.factors_at[group] + factor]
        if parts_of(columns, cells, group, factor) < whole:
            if factor == claimed or not may_cut(columns, cells, group, axis, factor):
                return claimed
            return factor if claimed == NO_CLAIM else CONFLICT
    return claimed


@compiled_in_place
def scatter_result(
    columns: Columns, cells: Cells, work: Worklist, group: int, axis: int
) -> bool:
    """Reduce-scatter partial results as readers request; True if a result is partial.

    The request is thereby answered without splitting the group, so that its operands
    stay as they are.
    """
    if not columns.may_read_partial[group]:
        return False
    is_found = False
    requests = 2 * num_groups(columns) + num_values(columns)
    for value in span(columns.values_at, group):
        requested = cells[requests + value, axis]
        for dim in range(columns.ports[value + 1] - columns.ports[value]):
            if (requested >> dim) & 1 and is_partial(
                columns, cells, work.cache, value, axis
            ):
                scatter(columns, cells, work, value, axis, dim)
                is_found = True
    return is_found


@compiled_in_place
def assign(
    columns: Columns, cells: Cells, work: Worklist, group: int, axis: int, factor: int
) -> None:
    """Split a factor of a group (class of equal ops) along an axis, in `cells`.

    Readers of the group's results are queued, and splits of its operands are requested.
    """
    groups, values = num_groups(columns), num_values(columns)
    cells[groups + group, axis] = num_cuts(columns, cells, group, factor)
    cells[group, axis] = factor
    invalidate(work.cache)
    for value in span(columns.values_at, group):
        if dim_of(columns, value, factor) >= 0:
            push_readers(columns, work, value)
    for operand in span(columns.operands_at, group):
        place = columns.ports[values + operand]
        for dim in range(columns.ports[values + operand + 1] - place):
            if not has_factor(columns, place + dim, factor):
                continue
            for at in span(columns.sources_at, operand):
                value = columns.sources[at]
                if dim_on(columns, cells, value, axis) < 0:
                    request(columns, cells, work, value, axis, dim)


@compiled_in_place
def push_readers(columns: Columns, work: Worklist, value: int) -> None:
    """Queue all groups (classes of equal ops) that read a value."""
    for at in span(columns.readers_at, value):
        push(work, FORWARD, columns.readers[at])


@compiled_in_place
def request(
    columns: Columns, cells: Cells, work: Worklist, value: int, axis: int, dim: int
) -> None:
    """Request that a value be split on a dim by the op that computes it.

    If that op leaves the value as a partial sum, the sum is reduce-scattered instead.
    """
    groups = num_groups(columns)
    maker = columns.makers[value]
    if cells[maker, axis] < 0:
        cells[2 * groups + num_values(columns) + value, axis] |= 1 << dim
        push(work, BACKWARD, maker)
    elif cells[2 * groups + value, axis] < 0:
        scatter(columns, cells, work, value, axis, dim)


@compiled_in_place
def scatter(
    columns: Columns, cells: Cells, work: Worklist, value: int, axis: int, dim: int
) -> None:
    """Reduce-scatter a partial value on a dim, if the axis size divides the dim."""
    row = 2 * num_groups(columns) + value
    if cells[row, axis] < 0 and can_scatter(columns, cells, value, dim, axis):
        cells[row, axis] = dim
        cells[len(cells) - 1, 0] += 1
        invalidate(work.cache)
        push_readers(columns, work, value)


@compiled_in_place
def push(work: Worklist, which: int, group: int) -> None:
    """Append a group (class of equal ops) to a queue, unless it is in there already."""
    if work.waiting[which, group]:
        return
    work.waiting[which, group] = 1
    capacity = work.queues.shape[1]
    first, count = work.ends[which, 0], work.ends[which, 1]
    work.queues[which, (first + count) % capacity] = group
    work.ends[which, 1] = count + 1


@compiled_in_place
def pop(work: Worklist, which: int) -> int:
    """Remove and return the first group (class of equal ops) of a queue."""
    first = work.ends[which, 0]
    group = work.queues[which, first]
    work.ends[which, 0] = (first + 1) % work.queues.shape[1]
    work.ends[which, 1] -= 1
    work.waiting[which, group] = 0
    return group

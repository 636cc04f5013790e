"""Propagation over columns, to the fixed point of one axis: `Engine`, compiled.

What is asked and in which order is what the engine asks of nodes, so that where each
group is one node both end in the same state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.planner.columns.graph_columns import (
    BLOCKED,
    FACTORS_AT,
    MAKER,
    MAY_CARRY,
    NAMES_AT,
    OPERANDS_AT,
    READERS_AT,
    SIZE,
    SOURCES_AT,
    VALUES_AT,
    Cells,
    Columns,
)
from meshwright.planner.columns.legality import can_scatter, may_cut, parts_of
from meshwright.planner.columns.partial_values import (
    PartialCache,
    dim_on,
    invalidate,
    is_partial,
    new_partial_cache,
    num_groups,
    num_values,
    span,
)
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place

CONFLICT = -2
NONE = -1
FORWARD, BACKWARD = 0, 1


class Worklist(NamedTuple):
    """Groups to visit, those to visit forward first, each in order of arrival.

    queues: [2, G], each a ring. ends: its first and its number, [2, 2]. waiting: [2, G]
    """

    queues: Ints
    ends: Ints
    waiting: Ints
    memory: PartialCache


def new_worklist(columns: Columns) -> Worklist:
    """Nothing to do."""
    groups = len(columns.groups) - 1
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
    """Cuts one factor of one group and propagates, in place; whether it can be cut."""
    if not may_cut(columns, cells, group, axis, factor):
        return False
    invalidate(work.memory)
    assign(columns, cells, work, group, axis, factor)
    while work.ends[FORWARD, 1] or work.ends[BACKWARD, 1]:
        which = FORWARD if work.ends[FORWARD, 1] else BACKWARD
        visit(columns, cells, work, pop(work, which), axis)
    return True


@compiled_in_place
def push(work: Worklist, which: int, group: int) -> None:
    """Adds a group to a queue, unless it waits there."""
    if work.waiting[which, group]:
        return
    work.waiting[which, group] = 1
    room = work.queues.shape[1]
    first, count = work.ends[which, 0], work.ends[which, 1]
    work.queues[which, (first + count) % room] = group
    work.ends[which, 1] = count + 1


@compiled_in_place
def pop(work: Worklist, which: int) -> int:
    """The first of a queue."""
    first = work.ends[which, 0]
    group = work.queues[which, first]
    work.ends[which, 0] = (first + 1) % work.queues.shape[1]
    work.ends[which, 1] -= 1
    work.waiting[which, group] = 0
    return group


# -- one group ------------------------------------------------------------------------


@compiled_in_place
def visit(
    columns: Columns, cells: Cells, work: Worklist, group: int, axis: int
) -> None:
    """Cuts a group as its operands, else its readers, ask for, if they agree."""
    if cells[group, axis] >= 0 or (columns.groups[group, BLOCKED] >> axis) & 1:
        return
    factor = claim_forward(columns, cells, group, axis)
    if factor == NONE:
        factor = claim_backward(columns, cells, group, axis)
        if factor != NONE and scatter_result(columns, cells, work, group, axis):
            return
    if factor >= 0:
        assign(columns, cells, work, group, axis, factor)


@compiled_in_place
def claim_forward(columns: Columns, cells: Cells, group: int, axis: int) -> int:
    """The factor that operands name; NONE, or CONFLICT for several."""
    claimed, values = NONE, num_values(columns)
    for operand in span(columns.groups, group, OPERANDS_AT):
        for at in span(columns.operands, operand, SOURCES_AT):
            dim = dim_on(columns, cells, columns.sources[at], axis)
            if dim >= 0:
                place = columns.ports[values + operand] + dim
                claimed = merge_claim(columns, cells, group, axis, place, claimed)
    return claimed


@compiled_in_place
def claim_backward(columns: Columns, cells: Cells, group: int, axis: int) -> int:
    """The factor that requests on results name; NONE, or CONFLICT for several."""
    claimed, groups = NONE, num_groups(columns)
    requests = 2 * groups + num_values(columns)
    for value in span(columns.groups, group, VALUES_AT):
        wanted = cells[requests + value, axis]
        first = columns.ports[value]
        for dim in range(columns.ports[value + 1] - first):
            if (wanted >> dim) & 1:
                claimed = merge_claim(columns, cells, group, axis, first + dim, claimed)
    return claimed


@compiled_in_place
def merge_claim(
    columns: Columns, cells: Cells, group: int, axis: int, place: int, claimed: int
) -> int:
    """What is claimed once a dim is wanted cut, too; what cannot be cut is no claim."""
    if claimed == CONFLICT:
        return CONFLICT
    for at in span(columns.dims, place, NAMES_AT):
        factor = columns.names[at]
        whole = columns.factors[columns.groups[group, FACTORS_AT] + factor, SIZE]
        if parts_of(columns, cells, group, factor) < whole:
            if factor == claimed or not may_cut(columns, cells, group, axis, factor):
                return claimed
            return factor if claimed == NONE else CONFLICT
    return claimed


@compiled_in_place
def scatter_result(
    columns: Columns, cells: Cells, work: Worklist, group: int, axis: int
) -> bool:
    """Where the result is a partial sum passing through, cuts it here, not before."""
    is_found = False
    if not columns.groups[group, MAY_CARRY]:
        return False
    requests = 2 * num_groups(columns) + num_values(columns)
    for value in span(columns.groups, group, VALUES_AT):
        wanted = cells[requests + value, axis]
        for dim in range(columns.ports[value + 1] - columns.ports[value]):
            if (wanted >> dim) & 1 and is_partial(
                columns, cells, work.memory, value, axis
            ):
                scatter(columns, cells, work, value, axis, dim)
                is_found = True
    return is_found


@compiled_in_place
def assign(
    columns: Columns, cells: Cells, work: Worklist, group: int, axis: int, factor: int
) -> None:
    """Cuts a factor, and tells readers of the results and makers of the operands."""
    groups, values = num_groups(columns), num_values(columns)
    rank = 0
    for other in range(len(columns.axis_sizes)):
        rank += cells[group, other] == factor
    cells[groups + group, axis] = rank
    cells[group, axis] = factor
    invalidate(work.memory)
    for value in span(columns.groups, group, VALUES_AT):
        if dim_of(columns, value, factor) >= 0:
            push_readers(columns, work, value)
    for operand in span(columns.groups, group, OPERANDS_AT):
        place = columns.ports[values + operand]
        for dim in range(columns.ports[values + operand + 1] - place):
            if not holds(columns, place + dim, factor):
                continue
            for at in span(columns.operands, operand, SOURCES_AT):
                value = columns.sources[at]
                if dim_on(columns, cells, value, axis) < 0:
                    request_cut(columns, cells, work, value, axis, dim)


@compiled_in_place
def dim_of(columns: Columns, port: int, factor: int) -> int:
    """The first dim of a value or operand that a factor is in, or -1."""
    first = columns.ports[port]
    for dim in range(first, columns.ports[port + 1]):
        if holds(columns, dim, factor):
            return dim - first
    return -1


@compiled_in_place
def holds(columns: Columns, dim: int, factor: int) -> bool:
    """Whether a factor is one of a dim's."""
    for at in span(columns.dims, dim, NAMES_AT):  # noqa: SIM110  as above
        if columns.names[at] == factor:
            return True
    return False


@compiled_in_place
def push_readers(columns: Columns, work: Worklist, value: int) -> None:
    """Has all readers of a value visited."""
    for at in span(columns.values, value, READERS_AT):
        push(work, FORWARD, columns.readers[at])


@compiled_in_place
def request_cut(
    columns: Columns, cells: Cells, work: Worklist, value: int, axis: int, dim: int
) -> None:
    """Asks for a value that is whole, or partial, to be cut where it is made."""
    groups = num_groups(columns)
    maker = columns.values[value, MAKER]
    if cells[maker, axis] < 0:
        cells[2 * groups + num_values(columns) + value, axis] |= 1 << dim
        push(work, BACKWARD, maker)
    elif cells[2 * groups + value, axis] < 0:
        scatter(columns, cells, work, value, axis, dim)


@compiled_in_place
def scatter(
    columns: Columns, cells: Cells, work: Worklist, value: int, axis: int, dim: int
) -> None:
    """Takes a partial value's sum as cut on `dim` from here on, if that divides."""
    row = 2 * num_groups(columns) + value
    if cells[row, axis] < 0 and can_scatter(columns, cells, value, dim, axis):
        cells[row, axis] = dim
        cells[len(cells) - 1, 0] += 1
        invalidate(work.memory)
        push_readers(columns, work, value)

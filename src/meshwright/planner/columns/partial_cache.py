"""Known answers to whether values are partial, and how answers depend on each other.

A value is partial along an axis if each device holds an addend of it (Shardy: unreduced).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.planner.columns.graph_columns import (
    IS_SUM,
    IS_WHOLE,
    IS_ZERO,
    MAKER,
    MASK,
    MAY_CARRY,
    OPERANDS_AT,
    SOURCES_AT,
    TRAVELS,
    Columns,
)
from meshwright.planner.columns.lookup import PARTIAL, dim_on, num_groups, span
from meshwright.planner.columns.state_cells import Cells
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place

QUEUE, FOUND, MARKS = range(3)
"""Rows of `PartialCache.lists`."""

NO, SOME, ALL = range(3)
"""Results of `partial_operands`."""


class PartialCache(NamedTuple):
    """Answers for one state, and scratch space to find more.

    stamp: number of the state, [1]. known: per strictness, axis and value, twice the stamp
    of the state for which the answer holds, plus the answer, [2, A, V]. lists: scratch
    space per strictness, [2, 3, V + 1]
    """

    stamp: Ints
    known: Ints
    lists: Ints


def new_partial_cache(columns: Columns) -> PartialCache:
    """An empty cache."""
    axes, values = len(columns.axis_sizes), len(columns.values) - 1
    return PartialCache(
        np.ones(1, np.int64),
        np.zeros((2, axes, values), np.int64),
        np.zeros((2, 3, values + 1), np.int64),
    )


@compiled_in_place
def invalidate(cache: PartialCache) -> None:
    """Drop all answers, because the state has changed."""
    cache.stamp[0] += 1


@compiled_in_place
def write_dependencies(
    columns: Columns,
    cells: Cells,
    cache: PartialCache,
    value: int,
    axis: int,
    strict: int,
) -> int:
    """The number of values on which an answer may depend, which are written in order.

    They go into the row FOUND of `lists`; values with known answers are left out.
    """
    known, stamp = cache.known[strict, axis], cache.stamp[0]
    lists = cache.lists[strict]
    lists[QUEUE, 0] = first = last = value
    lists[MARKS, value] = waiting = 1
    while waiting:
        waiting -= 1
        group = columns.values[lists[QUEUE, waiting], MAKER]
        if cells[group, axis] >= 0 or not columns.groups[group, MAY_CARRY]:
            continue
        for operand in span(columns.groups, group, OPERANDS_AT):
            for at in span(columns.operands, operand, SOURCES_AT):
                number = columns.sources[at]
                if lists[MARKS, number] or not columns.values[number, TRAVELS]:
                    continue
                if known[number] // 2 != stamp:
                    lists[MARKS, number] = 1
                    lists[QUEUE, waiting] = number
                    first, last = min(first, number), max(last, number)
                    waiting += 1
    count = 0
    for number in range(first, last + 1):
        if lists[MARKS, number]:
            lists[MARKS, number] = 0
            lists[FOUND, count] = number
            count += 1
    return count


@compiled_in_place
def leaves_partial(columns: Columns, cells: Cells, value: int, axis: int) -> int:
    """Whether the op that makes a value leaves it partial; -1 if the axis does not cut it.

    An op does if the axis cuts a factor over which it sums and its result is not
    scattered.
    """
    if cells[2 * num_groups(columns) + value, axis] >= 0:
        return 0
    group = columns.values[value, MAKER]
    if cells[group, axis] < 0:
        return -1
    is_left = dim_on(columns, cells, value, axis) == PARTIAL
    return int(is_left and columns.groups[group, IS_SUM])


@compiled_in_place
def partial_operands(
    columns: Columns, known: Ints, stamp: int, group: int, at: int
) -> int:
    """NO, SOME or ALL operands of a linear set that are partial; NO if others are, too."""
    mask, first = columns.linear[at, MASK], columns.groups[group, OPERANDS_AT]
    has_partial, has_whole = False, columns.linear[at, IS_WHOLE] == 1
    for operand in span(columns.groups, group, OPERANDS_AT):
        arrives = arrives_partial(columns, known, stamp, operand)
        if (mask >> (operand - first)) & 1:
            has_partial = has_partial or arrives
            has_whole = has_whole or not (arrives or columns.operands[operand, IS_ZERO])
        elif arrives:
            return NO
    if not has_partial:
        return NO
    return SOME if has_whole else ALL


@compiled_in_place
def arrives_partial(columns: Columns, known: Ints, stamp: int, operand: int) -> bool:
    """Whether all sources of an operand are known to be partial."""
    sources = span(columns.operands, operand, SOURCES_AT)
    for at in sources:
        number = columns.sources[at]
        if not columns.values[number, TRAVELS] or known[number] != 2 * stamp + 1:
            return False
    return len(sources) > 0

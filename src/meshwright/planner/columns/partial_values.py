"""Which values are partial under a state: the answers of `Carrier`, over columns.

A value is partial along an axis if each device holds an addend of it (Shardy: unreduced).
An operand with several sources is partial if all of them are. Values that equal layers
hand on in a circle are partial where the first of them has to be. In contrast to
`Carrier`, sums that a loop carries are taken in each iteration.
"""

from typing import NamedTuple

import numpy as np

from meshwright.planner.columns.graph_columns import (
    COUNT,
    IS_WHOLE,
    IS_ZERO,
    LINEAR_AT,
    MAKER,
    MASK,
    MAY_CARRY,
    NEXT_OPERAND,
    NEXT_READER,
    OPERANDS_AT,
    SOURCES_AT,
    TRAVELS,
    VALUES_AT,
    Columns,
)
from meshwright.planner.columns.state_cells import Cells, leaves_partial, span
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place

MOST_ADDENDS = 64
"""Length up to which a chain of additions is searched for another partial addend."""

QUEUE, FOUND, MARKS = range(3)
"""Rows of `PartialCache.lists`."""

NO, SOME, MOST, ALL = range(4)
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
def partial_operands(
    columns: Columns, known: Ints, stamp: int, group: int, at: int
) -> int:
    """How many operands of a linear set are partial: NO, SOME, MOST or ALL.

    NO also if an operand outside of the set is partial. MOST if a concatenation of the
    operands is worth one sum (`is_mostly_partial`).
    """
    mask, first = columns.linear[at, MASK], columns.groups[group, OPERANDS_AT]
    num_partial, has_whole = 0, columns.linear[at, IS_WHOLE] == 1
    for operand in span(columns.groups, group, OPERANDS_AT):
        arrives = arrives_partial(columns, known, stamp, operand)
        if (mask >> (operand - first)) & 1:
            num_partial += arrives
            has_whole = has_whole or not (arrives or columns.operands[operand, IS_ZERO])
        elif arrives:
            return NO
    if num_partial == 0:
        return NO
    if not has_whole:
        return ALL
    is_most = num_partial > 1 and 2 * num_partial >= columns.linear[at, COUNT]
    return MOST if is_most else SOME


@compiled_in_place
def arrives_partial(columns: Columns, known: Ints, stamp: int, operand: int) -> bool:
    """Whether all sources of an operand are known to be partial."""
    sources = span(columns.operands, operand, SOURCES_AT)
    for at in sources:
        number = columns.sources[at]
        if not columns.values[number, TRAVELS] or known[number] != 2 * stamp + 1:
            return False
    return len(sources) > 0


@compiled_in_place
def is_partial(
    columns: Columns, cells: Cells, cache: PartialCache, value: int, axis: int
) -> bool:
    """True if a value, as made, is partial along an axis."""
    stamp, known = cache.stamp[0], cache.known[0, axis]
    if known[value] // 2 != stamp:
        count = write_dependencies(columns, cells, cache, value, axis, 0)
        is_changed = True
        while is_changed:  # more than once only where equal layers form a circle
            is_changed = False
            for i in range(count):
                number = cache.lists[0, FOUND, i]
                if known[number] != 2 * stamp + 1:
                    answer = find_partial(columns, cells, cache, number, axis)
                    known[number] = 2 * stamp + answer
                    is_changed = is_changed or (answer and count > 1)
    return known[value] % 2 == 1


@compiled_in_place
def find_partial(
    columns: Columns, cells: Cells, cache: PartialCache, value: int, axis: int
) -> bool:
    """Whether a value is partial, given the same for the values that it depends on."""
    answer = leaves_partial(columns, cells, value, axis)
    if answer >= 0:
        return answer == 1
    group = columns.values[value, MAKER]
    return carried_set(columns, cells, cache, group, axis) >= 0


@compiled_in_place
def is_strictly_partial(
    columns: Columns, cells: Cells, cache: PartialCache, value: int, axis: int
) -> bool:
    """True if a value is partial although no whole addend is made partial for it."""
    stamp, known = cache.stamp[0], cache.known[1, axis]
    if known[value] // 2 != stamp:
        count = write_dependencies(columns, cells, cache, value, axis, 1)
        is_changed = True
        while is_changed:
            is_changed = False
            for i in range(count):
                number = cache.lists[1, FOUND, i]
                if known[number] != 2 * stamp + 1:
                    answer = find_strictly_partial(columns, cells, cache, number, axis)
                    known[number] = 2 * stamp + answer
                    is_changed = is_changed or (answer and count > 1)
    return known[value] % 2 == 1


@compiled_in_place
def find_strictly_partial(
    columns: Columns, cells: Cells, cache: PartialCache, value: int, axis: int
) -> bool:
    """`is_strictly_partial`, given the answers for the values that it depends on."""
    answer = leaves_partial(columns, cells, value, axis)
    if answer >= 0:
        return answer == 1
    known, stamp = cache.known[1, axis], cache.stamp[0]
    group = columns.values[value, MAKER]
    for at in span(columns.groups, group, LINEAR_AT):
        if partial_operands(columns, known, stamp, group, at) == ALL:
            return True
    return False


@compiled_in_place
def carried_set(
    columns: Columns, cells: Cells, cache: PartialCache, group: int, axis: int
) -> int:
    """The linear set of a group whose operands, and no others, are partial; or -1.

    Whole addends of a sum are made partial where the result is added to a partial value.
    """
    known, stamp = cache.known[0, axis], cache.stamp[0]
    for at in span(columns.groups, group, LINEAR_AT):
        answer = partial_operands(columns, known, stamp, group, at)
        if answer >= MOST:
            return at
        is_sum = columns.linear[at, COUNT] > 1
        if answer == SOME and is_sum and joins_sum(columns, cells, cache, group, axis):
            return at
    return -1


@compiled_in_place
def joins_sum(
    columns: Columns, cells: Cells, cache: PartialCache, group: int, axis: int
) -> bool:
    """True if the result only enters a chain of additions with another partial addend."""
    for _ in range(MOST_ADDENDS):
        value = columns.groups[group, VALUES_AT]
        if len(span(columns.groups, group, VALUES_AT)) != 1:
            return False
        group = columns.values[value, NEXT_READER]
        place = columns.values[value, NEXT_OPERAND]
        if group < 0 or cells[group, axis] >= 0:
            return False
        has_set = False
        for at in span(columns.groups, group, LINEAR_AT):
            mask = columns.linear[at, MASK]
            if (mask >> place) & 1 and columns.linear[at, COUNT] > 1:
                has_set = True
                others = mask & ~(1 << place)
                if has_strictly_partial(columns, cells, cache, group, others, axis):
                    return True
        if not has_set:
            return False
    return False


@compiled_in_place
def has_strictly_partial(
    columns: Columns,
    cells: Cells,
    cache: PartialCache,
    group: int,
    mask: int,
    axis: int,
) -> bool:
    """Whether an operand in a bit mask is strictly partial."""
    first = columns.groups[group, OPERANDS_AT]
    for operand in span(columns.groups, group, OPERANDS_AT):
        if not (mask >> (operand - first)) & 1:
            continue
        sources = span(columns.operands, operand, SOURCES_AT)
        answer = len(sources) > 0
        for at in sources:
            number = columns.sources[at]
            answer = (
                answer
                and columns.values[number, TRAVELS]
                and is_strictly_partial(columns, cells, cache, number, axis)
            )
        if answer:
            return True
    return False

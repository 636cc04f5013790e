"""Values that are partial sums in a state: the algorithm of `PartialSums`, on arrays.

A value is partial along an axis if each device holds an addend (Shardy: unreduced). An
operand with several sources is partial if all of them are. If equal layers pass a value
on in a cycle, it is partial if the first layer makes it so. Unlike `PartialSums`, this
code reduces sums that a loop carries in each iteration.
"""

from typing import NamedTuple

import numpy as np

from meshwright.partitioner.propagate.partial_sums import MAX_ADDENDS
from meshwright.planner.columns.graph_columns import Columns
from meshwright.planner.columns.state_cells import Cells, leaves_partial, span
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place

QUEUE, FOUND, MARKS = range(3)
"""Rows of the scratch array `PartialCache.lists`."""

NO, SOME, MOST, ALL = range(4)
"""Results of `partial_operands`: how many operands of a linear set are partial."""


class PartialCache(NamedTuple):
    """Known answers on one state to "is this value partial?", and scratch space.

    Index 0 of the first dim is for `is_partial`, 1 for `is_strictly_partial`. stamp:
    number of the state. known: twice the number of the state for which the answer
    holds, plus the answer, by axis and value, [2, A, V]. lists: scratch space, [2, 3, V
    + 1].
    """

    stamp: Ints
    known: Ints
    lists: Ints


def new_partial_cache(columns: Columns) -> PartialCache:
    """An empty cache for the graph whose arrays are `columns`."""
    axes, values = len(columns.axis_sizes), len(columns.makers)
    return PartialCache(
        np.ones(1, np.int64),
        np.zeros((2, axes, values), np.int64),
        np.zeros((2, 3, values + 1), np.int64),
    )


@compiled_in_place
def invalidate(cache: PartialCache) -> None:
    """Forget all cached answers about partial values, because the state has changed."""
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
    """Write the values on which the answer for `value` may depend; return their number.

    They are written in order into row FOUND of `lists`, without values of known answer.
    strict: index of the question in `PartialCache`.
    """
    known, stamp = cache.known[strict, axis], cache.stamp[0]
    lists = cache.lists[strict]
    lists[QUEUE, 0] = first = last = value
    lists[MARKS, value] = waiting = 1
    while waiting:
        waiting -= 1
        group = columns.makers[int(lists[QUEUE, waiting])]
        if cells[group, axis] >= 0 or not columns.may_read_partial[group]:
            continue
        for operand in span(columns.operands_at, group):
            for at in span(columns.sources_at, operand):
                number = columns.sources[at]
                if lists[MARKS, number] or not columns.may_stay_partial[number]:
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

    It is NO also if an operand outside of the set `at` is partial. It is MOST if at
    least half of several are: one sum of the result is then cheaper.
    """
    mask, first = columns.linear_masks[at], columns.operands_at[group]
    num_partial, has_whole = 0, columns.is_whole[at] == 1
    for operand in span(columns.operands_at, group):
        arrives = arrives_partial(columns, known, stamp, operand)
        if (mask >> (operand - first)) & 1:
            num_partial += arrives
            has_whole = has_whole or not (arrives or columns.is_zero[operand])
        elif arrives:
            return NO
    if num_partial == 0:
        return NO
    if not has_whole:
        return ALL
    is_most = num_partial > 1 and 2 * num_partial >= columns.linear_counts[at]
    return MOST if is_most else SOME


@compiled_in_place
def arrives_partial(columns: Columns, known: Ints, stamp: int, operand: int) -> bool:
    """Whether all values that an operand may read are known to be partial."""
    sources = span(columns.sources_at, operand)
    for at in sources:
        number = columns.sources[at]
        if not columns.may_stay_partial[number] or known[number] != 2 * stamp + 1:
            return False
    return len(sources) > 0


@compiled_in_place
def is_partial(
    columns: Columns, cells: Cells, cache: PartialCache, value: int, axis: int
) -> bool:
    """Whether a value is partial along an axis before any reduction of it."""
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
    """Whether a value is partial, given answers for the values that it depends on."""
    answer = leaves_partial(columns, cells, value, axis)
    if answer >= 0:
        return answer == 1
    group = columns.makers[value]
    return partial_set(columns, cells, cache, group, axis) >= 0


@compiled_in_place
def is_strictly_partial(
    columns: Columns, cells: Cells, cache: PartialCache, value: int, axis: int
) -> bool:
    """Whether a value is partial although no complete addend is made partial for it.

    (A complete value becomes partial if all devices but one replace it by 0.)
    """
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
    """The answer of `is_strictly_partial`, given answers for a value's operands."""
    answer = leaves_partial(columns, cells, value, axis)
    if answer >= 0:
        return answer == 1
    known, stamp = cache.known[1, axis], cache.stamp[0]
    group = columns.makers[value]
    for at in span(columns.linear_at, group):
        if partial_operands(columns, known, stamp, group, at) == ALL:
            return True
    return False


@compiled_in_place
def partial_set(
    columns: Columns, cells: Cells, cache: PartialCache, group: int, axis: int
) -> int:
    """Index of the set of operands that a group reads as partial sums, or -1.

    No operand outside of the set is partial. A complete addend may be made partial if
    the result is later added to a partial value (`joins_sum`).
    """
    known, stamp = cache.known[0, axis], cache.stamp[0]
    for at in span(columns.linear_at, group):
        answer = partial_operands(columns, known, stamp, group, at)
        if answer >= MOST:
            return at
        is_sum = columns.linear_counts[at] > 1
        if answer == SOME and is_sum and joins_sum(columns, cells, cache, group, axis):
            return at
    return -1


@compiled_in_place
def joins_sum(
    columns: Columns, cells: Cells, cache: PartialCache, group: int, axis: int
) -> bool:
    """Whether a group's result only enters a chain of additions with a partial addend.

    That addend has to be strictly partial (`is_strictly_partial`).
    """
    for _ in range(MAX_ADDENDS):
        value = columns.values_at[group]
        if len(span(columns.values_at, group)) != 1:
            return False
        group = int(columns.next_readers[value])
        place = columns.next_operands[value]
        if group < 0 or cells[group, axis] >= 0:
            return False
        has_set = False
        for at in span(columns.linear_at, group):
            mask = columns.linear_masks[at]
            if (mask >> place) & 1 and columns.linear_counts[at] > 1:
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
    """Whether one of the operands in a bit mask is strictly partial."""
    first = columns.operands_at[group]
    for operand in span(columns.operands_at, group):
        sources = span(columns.sources_at, operand)
        answer = len(sources) > 0 and (mask >> (operand - first)) & 1 == 1
        for at in sources:
            number = columns.sources[at]
            answer = answer and columns.may_stay_partial[number]
            answer = answer and is_strictly_partial(columns, cells, cache, number, axis)
        if answer:
            return True
    return False

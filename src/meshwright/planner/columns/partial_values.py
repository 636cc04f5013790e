"""Which values are addends under a state in columns: the answers of `Carrier`, compiled.

Where a group reads values of several groups, addends arrive if all of them are some; what
folded layers hand round is some where it has to be. Sums that a loop carries are taken in
each turn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.planner.columns.graph_columns import (
    COUNT,
    FACTORS_AT,
    IS_REDUCED,
    IS_SUM,
    IS_WHOLE,
    IS_ZERO,
    LINEAR_AT,
    MAKER,
    MASK,
    MAY_CARRY,
    NAMES_AT,
    NEXT_OPERAND,
    NEXT_READER,
    OPERANDS_AT,
    SOURCES_AT,
    TRAVELS,
    VALUES_AT,
    Cells,
    Columns,
)
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place

MOST_ADDENDS = 64
"""So far a sum of many addends is searched for another partial one."""

PARTIAL, NOWHERE = -1, -2
"""In place of the dim of a value that an axis cuts: the value holds addends along it, or
is whole."""

QUEUE, FOUND, MARKS = range(3)
NO, SOME, ALL = range(3)


class PartialCache(NamedTuple):
    """What is known of values under one state, and room to find out more.

    stamp: of the state, [1]. known: by strictness, axis and value, twice the stamp of the
    state it holds for, plus the answer, [2, A, V]. lists: by strictness, [2, 3, V + 1]
    """

    stamp: Ints
    known: Ints
    lists: Ints


def new_partial_cache(columns: Columns) -> PartialCache:
    """Nothing known yet."""
    axes, values = len(columns.axis_sizes), len(columns.values) - 1
    return PartialCache(
        np.ones(1, np.int64),
        np.zeros((2, axes, values), np.int64),
        np.zeros((2, 3, values + 1), np.int64),
    )


@compiled_in_place
def span(table: Ints, row: int, column: int) -> range:
    """Where the entries of a row are."""
    return range(table[row, column], table[row + 1, column])


@compiled_in_place
def num_groups(columns: Columns) -> int:
    """G."""
    return len(columns.groups) - 1


@compiled_in_place
def num_values(columns: Columns) -> int:
    """V."""
    return len(columns.values) - 1


@compiled_in_place
def invalidate(memory: PartialCache) -> None:
    """The state has changed."""
    memory.stamp[0] += 1


@compiled_in_place
def dim_on(columns: Columns, cells: Cells, value: int, axis: int) -> int:
    """The dim of a value that an axis cuts where it is made; PARTIAL, or NOWHERE."""
    groups = num_groups(columns)
    group = columns.values[value, MAKER]
    factor = cells[group, axis]
    scattered = cells[2 * groups + value, axis]
    if factor < 0:
        return scattered if scattered >= 0 else NOWHERE
    first = columns.ports[value]
    for dim in range(first, columns.ports[value + 1]):
        for at in span(columns.dims, dim, NAMES_AT):
            if columns.names[at] == factor:
                return dim - first
    if not columns.factors[columns.groups[group, FACTORS_AT] + factor, IS_REDUCED]:
        return NOWHERE
    return scattered if scattered >= 0 else PARTIAL


@compiled_in_place
def is_partial(
    columns: Columns, cells: Cells, memory: PartialCache, value: int, axis: int
) -> bool:
    """True where a value, as made, holds addends of a sum along an axis."""
    stamp, known = memory.stamp[0], memory.known[0, axis]
    if known[value] // 2 != stamp:
        count = write_dependencies(columns, cells, memory, value, axis, 0)
        is_changed = True
        while is_changed:  # more than once where what is folded goes round
            is_changed = False
            for i in range(count):
                number = memory.lists[0, FOUND, i]
                if known[number] != 2 * stamp + 1:
                    answer = find_partial(columns, cells, memory, number, axis)
                    known[number] = 2 * stamp + answer
                    is_changed = is_changed or (answer and count > 1)
    return known[value] % 2 == 1


@compiled_in_place
def find_partial(
    columns: Columns, cells: Cells, memory: PartialCache, value: int, axis: int
) -> bool:
    """The same, given the answers for what the value is made of."""
    answer = leaves_partial(columns, cells, value, axis)
    if answer >= 0:
        return answer == 1
    group = columns.values[value, MAKER]
    return carried_set(columns, cells, memory, group, axis) >= 0


@compiled_in_place
def is_strictly_partial(
    columns: Columns, cells: Cells, memory: PartialCache, value: int, axis: int
) -> bool:
    """The same, where no whole addend has to be made partial for it."""
    stamp, known = memory.stamp[0], memory.known[1, axis]
    if known[value] // 2 != stamp:
        count = write_dependencies(columns, cells, memory, value, axis, 1)
        is_changed = True
        while is_changed:
            is_changed = False
            for i in range(count):
                number = memory.lists[1, FOUND, i]
                if known[number] != 2 * stamp + 1:
                    answer = find_strictly_partial(
                        columns, cells, known, stamp, number, axis
                    )
                    known[number] = 2 * stamp + answer
                    is_changed = is_changed or (answer and count > 1)
    return known[value] % 2 == 1


@compiled_in_place
def find_strictly_partial(
    columns: Columns, cells: Cells, known: Ints, stamp: int, value: int, axis: int
) -> bool:
    """The same, given the answers for what the value is made of."""
    answer = leaves_partial(columns, cells, value, axis)
    if answer >= 0:
        return answer == 1
    group = columns.values[value, MAKER]
    for at in span(columns.groups, group, LINEAR_AT):
        if partial_operands(columns, known, stamp, group, at) == ALL:
            return True
    return False


@compiled_in_place
def write_dependencies(
    columns: Columns,
    cells: Cells,
    memory: PartialCache,
    value: int,
    axis: int,
    strict: int,
) -> int:
    """Writes, in order, the values on whose answers one may rest; how many."""
    known, stamp = memory.known[strict, axis], memory.stamp[0]
    lists = memory.lists[strict]
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
    """Whether a value's own maker leaves a sum open; -1 where it is not cut."""
    if cells[2 * num_groups(columns) + value, axis] >= 0:
        return 0
    group = columns.values[value, MAKER]
    if cells[group, axis] < 0:
        return -1
    is_open = dim_on(columns, cells, value, axis) == PARTIAL
    return int(is_open and columns.groups[group, IS_SUM])


@compiled_in_place
def carried_set(
    columns: Columns, cells: Cells, memory: PartialCache, group: int, axis: int
) -> int:
    """The linear set of a group whose operands, and only they, are addends; or -1."""
    known, stamp = memory.known[0, axis], memory.stamp[0]
    for at in span(columns.groups, group, LINEAR_AT):
        answer = partial_operands(columns, known, stamp, group, at)
        if answer == ALL:
            return at
        is_sum = columns.linear[at, COUNT] > 1
        if (
            answer == SOME
            and is_sum
            and joins_partial_sum(columns, cells, memory, group, axis)
        ):
            return at
    return -1


@compiled_in_place
def partial_operands(
    columns: Columns, known: Ints, stamp: int, group: int, at: int
) -> int:
    """How many operands of a linear set are known to be addends; NO one if others are."""
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
    """Whether all that an operand reads is known to be addends."""
    sources = span(columns.operands, operand, SOURCES_AT)
    for at in sources:
        number = columns.sources[at]
        if not columns.values[number, TRAVELS] or known[number] != 2 * stamp + 1:
            return False
    return len(sources) > 0


@compiled_in_place
def joins_partial_sum(
    columns: Columns, cells: Cells, memory: PartialCache, group: int, axis: int
) -> bool:
    """True when the result goes only into sums, one with a partial addend."""
    for _ in range(MOST_ADDENDS):
        value = columns.groups[group, VALUES_AT]
        if len(span(columns.groups, group, VALUES_AT)) != 1:
            return False
        group, place = (
            columns.values[value, NEXT_READER],
            columns.values[value, NEXT_OPERAND],
        )
        if group < 0 or cells[group, axis] >= 0:
            return False
        has_set = False
        for at in span(columns.groups, group, LINEAR_AT):
            mask = columns.linear[at, MASK]
            if not (mask >> place) & 1 or columns.linear[at, COUNT] < 2:
                continue
            has_set = True
            if has_strictly_partial(
                columns, cells, memory, group, mask & ~(1 << place), axis
            ):
                return True
        if not has_set:
            return False
    return False


@compiled_in_place
def has_strictly_partial(
    columns: Columns,
    cells: Cells,
    memory: PartialCache,
    group: int,
    mask: int,
    axis: int,
) -> bool:
    """Whether one of some operands of a group is strictly partial."""
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
                and is_strictly_partial(columns, cells, memory, number, axis)
            )
        if answer:
            return True
    return False

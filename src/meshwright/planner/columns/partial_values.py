"""Which values are partial under a state: the answers of `Carrier`, over columns.

An operand with several sources is partial if all of them are. Values that equal layers
hand on in a circle are partial where the first of them has to be. In contrast to
`Carrier`, sums that a loop carries are taken in each iteration.
"""

from __future__ import annotations

from meshwright.planner.columns.graph_columns import (
    COUNT,
    LINEAR_AT,
    MAKER,
    MASK,
    NEXT_OPERAND,
    NEXT_READER,
    OPERANDS_AT,
    SOURCES_AT,
    TRAVELS,
    VALUES_AT,
    Columns,
)
from meshwright.planner.columns.lookup import span
from meshwright.planner.columns.partial_cache import (
    ALL,
    FOUND,
    SOME,
    PartialCache,
    leaves_partial,
    partial_operands,
    write_dependencies,
)
from meshwright.planner.columns.state_cells import Cells
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place

MOST_ADDENDS = 64
"""Length up to which a chain of additions is searched for another partial addend."""


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
    """`is_partial`, given the answers for the values that it depends on."""
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
    """`is_strictly_partial`, given the answers for the values that it depends on."""
    answer = leaves_partial(columns, cells, value, axis)
    if answer >= 0:
        return answer == 1
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
        if answer == ALL:
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

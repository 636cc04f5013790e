"""Where partial values are reduced: which stay partial, and which groups add them."""

from __future__ import annotations

from meshwright.planner.columns.graph_columns import (
    COUNT,
    MASK,
    OPERANDS_AT,
    READERS_AT,
    SOURCES_AT,
    VALUES_AT,
    Columns,
)
from meshwright.planner.columns.partial_values import (
    PartialCache,
    carried_set,
    invalidate,
    is_partial,
)
from meshwright.planner.columns.state_cells import (
    Cells,
    leaves_partial,
    num_groups,
    span,
)
from meshwright.search.arrays import Bools, Ints
from meshwright.search.compiled import compiled_in_place


@compiled_in_place
def place_reductions(
    columns: Columns, cells: Cells, cache: PartialCache, carried: Ints, left: Bools
) -> None:
    """Write which groups carry partial sums on, and which values are left partial.

    carried: the linear set in which a group takes partial operands, or -1, [G, A]. left:
    values that are not reduced where they are made, [V, A]. Both agree: every value that
    a group carries is left partial, and every value left partial is carried by all readers.
    """
    invalidate(cache)
    carried[:] = -1
    left[:] = False
    sums = 2 * num_groups(columns)
    for axis in range(len(columns.axis_sizes)):
        if not has_partial_sum(columns, cells, axis):
            continue
        for value in columns.travellers:
            if cells[sums + value, axis] < 0:
                left[value, axis] = is_partial(columns, cells, cache, value, axis)
        for group in columns.carriers:
            value = columns.groups[group, VALUES_AT]
            if cells[group, axis] < 0 and (
                cells[sums + value, axis] >= 0
                or is_partial(columns, cells, cache, value, axis)
            ):
                carried[group, axis] = carried_set(columns, cells, cache, group, axis)
        while drop_unmatched(columns, axis, carried, left):
            pass


@compiled_in_place
def has_partial_sum(columns: Columns, cells: Cells, axis: int) -> bool:
    """Whether some op leaves a sum along an axis that may be handed on partial."""
    for value in columns.travellers:
        if leaves_partial(columns, cells, value, axis) > 0:
            return True
    return False


@compiled_in_place
def drop_unmatched(columns: Columns, axis: int, carried: Ints, left: Bools) -> bool:
    """Drop entries to which readers or makers do not agree; whether any was dropped."""
    is_changed = False
    for value in columns.travellers:
        if left[value, axis]:
            readers = span(columns.values, value, READERS_AT)
            is_accepted = len(readers) > 0
            for at in readers:
                reader = columns.readers[at]
                at_reader = accepts(columns, reader, value, carried[reader, axis])
                is_accepted = is_accepted and at_reader
            if not is_accepted:
                left[value, axis] = False
                is_changed = True
    for group in columns.carriers:
        if carried[group, axis] >= 0 and not arrives(
            columns, group, axis, carried, left
        ):
            carried[group, axis] = -1
            is_changed = True
            for value in span(columns.groups, group, VALUES_AT):
                left[value, axis] = False
    return is_changed


@compiled_in_place
def accepts(columns: Columns, group: int, value: int, at: int) -> bool:
    """Whether a group reads a value only in the linear set that it carries, if any."""
    if at < 0:
        return False
    first = columns.groups[group, OPERANDS_AT]
    for operand in span(columns.groups, group, OPERANDS_AT):
        for source in span(columns.operands, operand, SOURCES_AT):
            is_in = (columns.linear[at, MASK] >> (operand - first)) & 1
            if columns.sources[source] == value and not is_in:
                return False
    return True


@compiled_in_place
def arrives(
    columns: Columns, group: int, axis: int, carried: Ints, left: Bools
) -> bool:
    """Whether partial values arrive in the set of a group; all of a set of one operand."""
    at = carried[group, axis]
    mask = columns.linear[at, MASK]
    first = columns.groups[group, OPERANDS_AT]
    has_any, has_all = False, True
    for operand in span(columns.groups, group, OPERANDS_AT):
        if (mask >> (operand - first)) & 1:
            for i in span(columns.operands, operand, SOURCES_AT):
                is_left = left[columns.sources[i], axis]
                has_any = has_any or is_left
                has_all = has_all and is_left
    return has_any and (has_all or columns.linear[at, COUNT] > 1)

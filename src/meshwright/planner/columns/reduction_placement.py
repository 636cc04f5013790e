"""What becomes of sums under a state in columns: who hands addends on, who takes them."""

from __future__ import annotations

from meshwright.planner.columns.graph_columns import (
    COUNT,
    MASK,
    OPERANDS_AT,
    READERS_AT,
    SOURCES_AT,
    VALUES_AT,
    Cells,
    Columns,
)
from meshwright.planner.columns.partial_values import (
    PartialCache,
    carried_set,
    invalidate,
    is_partial,
    leaves_partial,
    num_groups,
    span,
)
from meshwright.search.arrays import Bools, Ints
from meshwright.search.compiled import compiled_in_place


@compiled_in_place
def place_reductions(
    columns: Columns, cells: Cells, memory: PartialCache, taken: Ints, handed: Bools
) -> None:
    """What becomes of addends: `taken` [G, A] the set in which a group takes some, or -1.

    handed [V, A]: values that are handed on as addends. Both agree: what is taken is
    handed on by all that make it, what is handed on is taken by all that read it.
    """
    invalidate(memory)
    taken[:] = -1
    handed[:] = False
    sums = 2 * num_groups(columns)
    for axis in range(len(columns.axis_sizes)):
        if not has_partial_sum(columns, cells, axis):
            continue
        for value in columns.travellers:
            if cells[sums + value, axis] < 0:
                handed[value, axis] = is_partial(columns, cells, memory, value, axis)
        for group in columns.carriers:
            value = columns.groups[group, VALUES_AT]
            if cells[group, axis] < 0 and (
                cells[sums + value, axis] >= 0
                or is_partial(columns, cells, memory, value, axis)
            ):
                taken[group, axis] = carried_set(columns, cells, memory, group, axis)
        while drop_unmatched(columns, axis, taken, handed):
            pass


@compiled_in_place
def has_partial_sum(columns: Columns, cells: Cells, axis: int) -> bool:
    """Whether some sum along an axis may travel."""
    for value in columns.travellers:
        if leaves_partial(columns, cells, value, axis) > 0:
            return True
    return False


@compiled_in_place
def drop_unmatched(columns: Columns, axis: int, taken: Ints, handed: Bools) -> bool:
    """Takes back what the other side does not agree to; whether anything was."""
    is_changed = False
    for value in columns.travellers:
        if handed[value, axis]:
            readers = span(columns.values, value, READERS_AT)
            is_accepted = len(readers) > 0
            for at in readers:
                reader = columns.readers[at]
                at_reader = accepts(columns, reader, value, taken[reader, axis])
                is_accepted = is_accepted and at_reader
            if not is_accepted:
                handed[value, axis] = False
                is_changed = True
    for group in columns.carriers:
        if taken[group, axis] >= 0 and not arrives(columns, group, axis, taken, handed):
            taken[group, axis] = -1
            is_changed = True
            for value in span(columns.groups, group, VALUES_AT):
                handed[value, axis] = False
    return is_changed


@compiled_in_place
def accepts(columns: Columns, group: int, value: int, taken: int) -> bool:
    """Whether a group that takes addends in a set reads a value only there."""
    if taken < 0:
        return False
    first = columns.groups[group, OPERANDS_AT]
    for operand in span(columns.groups, group, OPERANDS_AT):
        for at in span(columns.operands, operand, SOURCES_AT):
            is_in = (columns.linear[taken, MASK] >> (operand - first)) & 1
            if columns.sources[at] == value and not is_in:
                return False
    return True


@compiled_in_place
def arrives(
    columns: Columns, group: int, axis: int, taken: Ints, handed: Bools
) -> bool:
    """Whether addends do arrive in the set, in all of it where it is one operand."""
    at = taken[group, axis]
    mask = columns.linear[at, MASK]
    first = columns.groups[group, OPERANDS_AT]
    has_any, has_all = False, True
    for operand in span(columns.groups, group, OPERANDS_AT):
        if (mask >> (operand - first)) & 1:
            for i in span(columns.operands, operand, SOURCES_AT):
                is_handed = handed[columns.sources[i], axis]
                has_any = has_any or is_handed
                has_all = has_all and is_handed
    return has_any and (has_all or columns.linear[at, COUNT] > 1)

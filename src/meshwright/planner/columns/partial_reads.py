"""The choice of partial sums that are passed on to readers without a reduction.

A partial sum is a value of which each device holds an addend. The state and the graph
are arrays of integers (`Columns`, `Cells`); a group is a class of equal ops.
"""

from meshwright.planner.columns.graph_columns import Columns
from meshwright.planner.columns.partial_values import (
    PartialCache,
    invalidate,
    is_partial,
    partial_set,
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
    columns: Columns, cells: Cells, cache: PartialCache, partial_sets: Ints, left: Bools
) -> None:
    """Decide which partial sums are passed on to their readers without a reduction.

    G counts groups (classes of equal ops), V values, A mesh axes.
    partial_sets: result: for each group the index of the set of operands that it reads
        as partial sums, or -1, [G, A].
    left: result: whether a value stays partial after the op that computes it, [V, A].
    At the end both agree: every value that a group reads as a partial sum stays
    partial, and all readers of a value that stays partial read it so.
    """
    invalidate(cache)
    partial_sets[:] = -1
    left[:] = False
    sums = 2 * num_groups(columns)
    for axis in range(len(columns.axis_sizes)):
        if not has_partial_sum(columns, cells, axis):
            continue
        for value in columns.partial_values:
            if cells[sums + value, axis] < 0:
                left[value, axis] = is_partial(columns, cells, cache, value, axis)
        for group in columns.partial_readers:
            value = int(columns.values_at[group])
            if cells[group, axis] < 0 and (
                cells[sums + value, axis] >= 0
                or is_partial(columns, cells, cache, value, axis)
            ):
                partial_sets[group, axis] = partial_set(
                    columns, cells, cache, group, axis
                )
        while drop_unmatched(columns, axis, partial_sets, left):
            pass


@compiled_in_place
def has_partial_sum(columns: Columns, cells: Cells, axis: int) -> bool:
    """Whether some op produces a partial sum along an axis that may be passed on."""
    for value in columns.partial_values:
        if leaves_partial(columns, cells, value, axis) > 0:
            return True
    return False


@compiled_in_place
def drop_unmatched(
    columns: Columns, axis: int, partial_sets: Ints, left: Bools
) -> bool:
    """Undo decisions to pass on a partial sum that not all of its readers accept.

    Such sums are reduced where they are computed, and their readers read complete
    values. Returns whether anything was changed; the caller repeats until nothing is.
    """
    is_changed = False
    for value in columns.partial_values:
        if left[value, axis]:
            readers = span(columns.readers_at, value)
            is_accepted = len(readers) > 0
            for at in readers:
                reader = columns.readers[at]
                at_reader = accepts(columns, reader, value, partial_sets[reader, axis])
                is_accepted = is_accepted and at_reader
            if not is_accepted:
                left[value, axis] = False
                is_changed = True
    for group in columns.partial_readers:
        if partial_sets[group, axis] >= 0 and not arrives(
            columns, group, axis, partial_sets, left
        ):
            partial_sets[group, axis] = -1
            is_changed = True
            for value in span(columns.values_at, group):
                left[value, axis] = False
    return is_changed


@compiled_in_place
def accepts(columns: Columns, group: int, value: int, at: int) -> bool:
    """Whether a group (class of equal ops) can read a value as a partial sum.

    The group must read the value only through operands of one linear set, in which it
    is jointly linear.
    at: index of the linear set that the group reads partial, or -1.
    """
    if at < 0:
        return False
    first = columns.operands_at[group]
    for operand in span(columns.operands_at, group):
        for source in span(columns.sources_at, operand):
            is_in = (columns.linear_masks[at] >> (operand - first)) & 1
            if columns.sources[source] == value and not is_in:
                return False
    return True


@compiled_in_place
def arrives(
    columns: Columns, group: int, axis: int, partial_sets: Ints, left: Bools
) -> bool:
    """Whether a partial value reaches an operand that a group reads as a partial sum.

    If the group reads only one such operand, all values that it may read there must be
    partial.
    """
    at = partial_sets[group, axis]
    mask = columns.linear_masks[at]
    first = columns.operands_at[group]
    has_any, has_all = False, True
    for operand in span(columns.operands_at, group):
        if (mask >> (operand - first)) & 1:
            for i in span(columns.sources_at, operand):
                is_left = bool(left[columns.sources[i], axis])
                has_any = has_any or is_left
                has_all = has_all and is_left
    return has_any and (has_all or int(columns.linear_counts[at]) > 1)

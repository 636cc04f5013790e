"""What can still be cut under a state in columns: `State.why_not`, compiled."""

from __future__ import annotations

from meshwright.planner.columns.graph_columns import (
    BLOCKED,
    EXTENT,
    FACTORS_AT,
    HAS_PRODUCTS,
    LEAST,
    MAKER,
    NAMES_AT,
    OPERANDS_AT,
    SIZE,
    VALUES_AT,
    Cells,
    Columns,
)
from meshwright.planner.columns.partial_values import num_groups, num_values, span
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place


@compiled_in_place
def parts_of(columns: Columns, cells: Cells, group: int, factor: int) -> int:
    """Into how many parts a factor is cut."""
    parts = 1
    for axis in range(len(columns.axis_sizes)):
        if cells[group, axis] == factor:
            parts *= columns.axis_sizes[axis]
    return parts


@compiled_in_place
def may_cut(columns: Columns, cells: Cells, group: int, axis: int, factor: int) -> bool:
    """Whether an axis can cut a factor of a group (`State.why_not`)."""
    if (columns.groups[group, BLOCKED] >> axis) & 1 or cells[group, axis] >= 0:
        return False
    place = columns.groups[group, FACTORS_AT] + factor
    extent = columns.factors[place, SIZE]
    parts = columns.axis_sizes[axis] * parts_of(columns, cells, group, factor)
    if extent % parts or extent < parts * columns.factors[place, LEAST]:
        return False
    if cells[len(cells) - 1, 0] > 0:
        for value in span(columns.groups, group, VALUES_AT):
            if not scattered_dims_divide(columns, cells, value, axis, factor):
                return False
    return not columns.groups[group, HAS_PRODUCTS] or lines_up(
        columns, cells, group, factor
    )


@compiled_in_place
def scattered_dims_divide(
    columns: Columns, cells: Cells, value: int, axis: int, factor: int
) -> bool:
    """Whether what sums leave of a value's dims of a factor can be cut, too."""
    first = columns.ports[value]
    for dim in range(first, columns.ports[value + 1]):
        for at in span(columns.dims, dim, NAMES_AT):
            if columns.names[at] == factor:
                if not can_scatter(columns, cells, value, dim - first, axis):
                    return False
                break
    return True


@compiled_in_place
def can_scatter(
    columns: Columns, cells: Cells, value: int, dim: int, axis: int
) -> bool:
    """True when a partial value may be scattered along `dim`: it divides."""
    group, sums = columns.values[value, MAKER], 2 * num_groups(columns)
    parts = columns.axis_sizes[axis]
    place = columns.ports[value] + dim
    for at in span(columns.dims, place, NAMES_AT):
        parts *= parts_of(columns, cells, group, columns.names[at])
    for other in range(len(columns.axis_sizes)):
        if cells[sums + value, other] == dim:
            parts *= columns.axis_sizes[other]
    return columns.dims[place, EXTENT] % parts == 0


@compiled_in_place
def lines_up(columns: Columns, cells: Cells, group: int, factor: int) -> bool:
    """Whether a cut fits the products of factors of a group's dims."""
    values = num_values(columns)
    for value in span(columns.groups, group, VALUES_AT):
        if not port_lines_up(columns, cells, group, value, factor):
            return False
    for operand in span(columns.groups, group, OPERANDS_AT):
        if not port_lines_up(columns, cells, group, values + operand, factor):
            return False
    return True


@compiled_in_place
def port_lines_up(
    columns: Columns, cells: Cells, group: int, port: int, factor: int
) -> bool:
    """A minor factor can be cut only once the major ones are cut to pieces of one."""
    for dim in range(columns.ports[port], columns.ports[port + 1]):
        begin, end = columns.dims[dim, NAMES_AT], columns.dims[dim + 1, NAMES_AT]
        place = -1
        for at in range(begin, end):
            if columns.names[at] == factor:
                place = at
                break
        if place < 0 or end - begin == 1:
            continue
        for at in range(begin, end):
            other = columns.names[at]
            parts = parts_of(columns, cells, group, other)
            whole = columns.factors[columns.groups[group, FACTORS_AT] + other, SIZE]
            if (at < place and parts != whole) or (
                at > place and is_used(columns, cells, group, other)
            ):
                return False
    return True


@compiled_in_place
def is_used(columns: Columns, cells: Cells, group: int, factor: int) -> bool:
    """Whether some axis cuts a factor."""
    for axis in range(len(columns.axis_sizes)):  # noqa: SIM110  numba has no generators
        if cells[group, axis] == factor:
            return True
    return False


@compiled_in_place
def write_legal_cuts(columns: Columns, cells: Cells, moves: Ints, found: Ints) -> int:
    """Writes the numbers of those of some cuts that can be made; how many.

    moves: group, axis, factor, and into how many parts in all it is to be cut, [N, 4];
    more than by the axis where that is only the first unit of an axis.
    """
    count = 0
    for i in range(len(moves)):
        group, axis, factor, size = moves[i]
        if may_cut(columns, cells, group, axis, factor):
            extent = columns.factors[columns.groups[group, FACTORS_AT] + factor, SIZE]
            if extent % (size * parts_of(columns, cells, group, factor)) == 0:
                found[count] = i
                count += 1
    return count

"""Which cuts are legal under a state: `State.why_not`, over columns."""

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
    Columns,
)
from meshwright.planner.columns.lookup import (
    is_cut,
    num_groups,
    num_values,
    parts_of,
    span,
)
from meshwright.planner.columns.state_cells import Cells
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place


@compiled_in_place
def may_cut(columns: Columns, cells: Cells, group: int, axis: int, factor: int) -> bool:
    """Whether an axis can cut a factor of a group (`State.why_not` is `None`)."""
    if (columns.groups[group, BLOCKED] >> axis) & 1 or cells[group, axis] >= 0:
        return False
    place = columns.groups[group, FACTORS_AT] + factor
    extent = columns.factors[place, SIZE]
    parts = columns.axis_sizes[axis] * parts_of(columns, cells, group, factor)
    if extent % parts or extent < parts * columns.factors[place, LEAST]:
        return False
    if cells[len(cells) - 1, 0] > 0:
        for value in span(columns.groups, group, VALUES_AT):
            if not divides_scattered(columns, cells, value, axis, factor):
                return False
    return not columns.groups[group, HAS_PRODUCTS] or lines_up(
        columns, cells, group, factor
    )


@compiled_in_place
def divides_scattered(
    columns: Columns, cells: Cells, value: int, axis: int, factor: int
) -> bool:
    """Whether a cut of a factor divides a value's dims also after sums are scattered."""
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
    """True if the parts of a value's dim can be divided once more, along an axis."""
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
    """Whether a cut keeps all dims that are products of factors in contiguous parts."""
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
    """`lines_up` for one value or operand.

    A minor factor can be cut only after the major ones are cut into parts of one.
    """
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
                at > place and is_cut(columns, cells, group, other)
            ):
                return False
    return True


@compiled_in_place
def write_legal_cuts(columns: Columns, cells: Cells, cuts: Ints, found: Ints) -> int:
    """The number of cuts that are legal, whose positions are written into `found`.

    cuts: group, axis, factor, and the number of parts, [N, 4]. The number of parts is a
    multiple of the axis's size if the axis is the first sub-axis of a larger one.
    """
    count = 0
    for i in range(len(cuts)):
        group, axis, factor, size = cuts[i]
        if may_cut(columns, cells, group, axis, factor):
            extent = columns.factors[columns.groups[group, FACTORS_AT] + factor, SIZE]
            if extent % (size * parts_of(columns, cells, group, factor)) == 0:
                found[count] = i
                count += 1
    return count

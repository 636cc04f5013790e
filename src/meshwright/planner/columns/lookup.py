"""Lookups in columns and in the cells of a state."""

from __future__ import annotations

from meshwright.planner.columns.graph_columns import (
    FACTORS_AT,
    IS_REDUCED,
    MAKER,
    NAMES_AT,
    Columns,
)
from meshwright.planner.columns.state_cells import Cells
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place

PARTIAL, NOWHERE = -1, -2
"""Results of `dim_on` for a value that an axis does not cut: partial along the axis, or
whole."""


@compiled_in_place
def span(table: Ints, row: int, column: int) -> range:
    """Positions of a row's entries in the table that a column of offsets points into."""
    return range(table[row, column], table[row + 1, column])


@compiled_in_place
def num_groups(columns: Columns) -> int:
    """The number of groups, G."""
    return len(columns.groups) - 1


@compiled_in_place
def num_values(columns: Columns) -> int:
    """The number of values, V."""
    return len(columns.values) - 1


@compiled_in_place
def dim_on(columns: Columns, cells: Cells, value: int, axis: int) -> int:
    """The dim of a value that an axis cuts where it is made; else PARTIAL or NOWHERE."""
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
def dim_of(columns: Columns, port: int, factor: int) -> int:
    """The first dim of a value or operand that contains a factor, or -1."""
    first = columns.ports[port]
    for dim in range(first, columns.ports[port + 1]):
        if has_factor(columns, dim, factor):
            return dim - first
    return -1


@compiled_in_place
def has_factor(columns: Columns, dim: int, factor: int) -> bool:
    """Whether a dim contains a factor; `dim` is a row of `columns.dims`."""
    for at in span(columns.dims, dim, NAMES_AT):  # noqa: SIM110  numba has no generators
        if columns.names[at] == factor:
            return True
    return False


@compiled_in_place
def parts_of(columns: Columns, cells: Cells, group: int, factor: int) -> int:
    """The number of parts into which axes cut a factor."""
    parts = 1
    for axis in range(len(columns.axis_sizes)):
        if cells[group, axis] == factor:
            parts *= columns.axis_sizes[axis]
    return parts


@compiled_in_place
def is_cut(columns: Columns, cells: Cells, group: int, factor: int) -> bool:
    """Whether an axis cuts a factor."""
    for axis in range(len(columns.axis_sizes)):  # noqa: SIM110  numba has no generators
        if cells[group, axis] == factor:
            return True
    return False

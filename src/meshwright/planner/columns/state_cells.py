"""A partitioning state as an array of integers (its cells), for compiled loops.

The array has a row for each decision and a column for each mesh axis. Most decisions
are about groups, which are classes of equal ops. The functions do what `State.dim_on`
and `why_not` do for a `State`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.partitioner.propagate import State
from meshwright.planner.columns.graph_columns import Columns
from meshwright.planner.strategies.symmetry import ReducedGraph
from meshwright.search.arrays import Ints
from meshwright.search.compiled import compiled_in_place

type Cells = NDArray[np.int16]
"""A partitioning state, [rows, A]; `CellRows` says what each row holds."""


class CellRows(NamedTuple):
    """First row of each part of the cells (the integer array) of a state.

    Rows from 0 hold, for each group of equal ops, the factor that an axis splits, or
    -1. From `ranks`: the position of the axis among the axes that split this factor.
    From `sums`: for each value the dim on which its partial sum is reduce-scattered, or
    -1. From `requests`: bit mask of the dims on which readers want the value split. Row
    `total`: the number of reduce-scattered sums.
    """

    ranks: int
    sums: int
    requests: int
    total: int
    end: int

    @classmethod
    def of(cls, columns: Columns) -> CellRows:
        """The rows of states of the graph whose arrays are `columns`."""
        groups, values = len(columns.blocked), len(columns.makers)
        total = 2 * groups + 2 * values
        return cls(groups, 2 * groups, 2 * groups + values, total, total + 1)


def start_cells(columns: Columns, state: State, reduced: ReducedGraph) -> Cells:
    """The cells (integer array) of a propagation state.

    Splits are those of the first member of each group; requests are those of all
    members.
    """
    rows, axes = CellRows.of(columns), tuple(state.size)
    cells = np.full((rows.end, len(axes)), -1, np.int16)
    cells[rows.ranks : rows.sums] = 0
    cells[rows.requests : rows.end] = 0
    for group in reduced.classes:
        for factor, own in state.axes_of[group.node.index].items():
            for rank, axis in enumerate(own):
                cells[group.index, axes.index(axis)] = factor
                cells[rows.ranks + group.index, axes.index(axis)] = rank
    numbers = {
        value: int(columns.values_at[reduced.class_of[node.index]]) + result
        for node in state.graph.nodes
        for result, (value, _) in enumerate(node.outs)
    }
    for (value, axis), dim in state.scattered.items():
        cells[rows.sums + numbers[value], axes.index(axis)] = dim
    for (value, axis), dims in state.requests.items():
        for dim in dims:
            cells[rows.requests + numbers[value], axes.index(axis)] |= 1 << dim
    cells[rows.total, 0] = (cells[rows.sums : rows.requests] >= 0).sum()
    cells.flags.writeable = False
    return cells


PARTIAL, UNCUT = -1, -2
"""Results of `dim_on` for a value of which an axis splits no dim.

PARTIAL: the value is partial along the axis. UNCUT: it is the same on all of its
devices.
"""


@compiled_in_place
def span(starts: Ints, row: int) -> range:
    """Positions of a row's entries in another array; `starts`: the rows' offsets."""
    return range(starts[row], starts[row + 1])


@compiled_in_place
def num_groups(columns: Columns) -> int:
    """The number of groups (classes of equal ops), G."""
    return len(columns.blocked)


@compiled_in_place
def num_values(columns: Columns) -> int:
    """The number of values in the symmetry-reduced graph, V."""
    return len(columns.makers)


@compiled_in_place
def dim_on(columns: Columns, cells: Cells, value: int, axis: int) -> int:
    """The dim of a value that an axis splits at its producer, or PARTIAL or UNCUT."""
    group = columns.makers[value]
    factor = cells[group, axis]
    if factor >= 0:
        dim = dim_of(columns, value, factor)
        if dim >= 0:
            return dim
        if not columns.is_reduced[columns.factors_at[group] + factor]:
            return UNCUT
    scattered = cells[2 * num_groups(columns) + value, axis]
    if scattered >= 0:
        return scattered
    return PARTIAL if factor >= 0 else UNCUT


@compiled_in_place
def leaves_partial(columns: Columns, cells: Cells, value: int, axis: int) -> int:
    """1 if an op leaves a value partial along an axis, else 0; -1 if it is not split.

    The value is partial if the axis splits a factor that the op sums over, and the sum
    is not reduce-scattered. The result is -1 if the axis does not split the op.
    """
    if cells[2 * num_groups(columns) + value, axis] >= 0:
        return 0
    group = columns.makers[value]
    if cells[group, axis] < 0:
        return -1
    is_left = dim_on(columns, cells, value, axis) == PARTIAL
    return int(is_left and columns.is_sum[group])


@compiled_in_place
def dim_of(columns: Columns, port: int, factor: int) -> int:
    """The first dim of a value or operand that contains a factor, or -1.

    port: row of the value or operand in `columns.ports`.
    """
    first = columns.ports[port]
    for dim in range(first, columns.ports[port + 1]):
        if has_factor(columns, dim, factor):
            return dim - first
    return -1


@compiled_in_place
def has_factor(columns: Columns, dim: int, factor: int) -> bool:
    """Whether a dim contains a factor; `dim` is a row of `columns.extents`."""
    for at in span(columns.names_at, dim):  # noqa: SIM110  numba has no generators
        if columns.names[at] == factor:
            return True
    return False


@compiled_in_place
def parts_of(columns: Columns, cells: Cells, group: int, factor: int) -> int:
    """The number of parts into which mesh axes split a factor of a group."""
    parts = 1
    for axis in range(len(columns.axis_sizes)):
        if cells[group, axis] == factor:
            parts *= columns.axis_sizes[axis]
    return parts


@compiled_in_place
def num_cuts(columns: Columns, cells: Cells, group: int, factor: int) -> int:
    """The number of mesh axes that split a factor of a group."""
    count = 0
    for axis in range(len(columns.axis_sizes)):
        count += cells[group, axis] == factor
    return count


@compiled_in_place
def may_cut(columns: Columns, cells: Cells, group: int, axis: int, factor: int) -> bool:
    """Whether an axis may split a factor of a group: `why_not` would be `None`."""
    if (columns.blocked[group] >> axis) & 1 or cells[group, axis] >= 0:
        return False
    place = columns.factors_at[group] + factor
    extent = columns.sizes[place]
    parts = columns.axis_sizes[axis] * parts_of(columns, cells, group, factor)
    if extent % parts or extent < parts * columns.least[place]:
        return False
    if cells[len(cells) - 1, 0] > 0:
        for value in span(columns.values_at, group):
            if not divides_scattered(columns, cells, value, axis, factor):
                return False
    return not columns.has_products[group] or lines_up(columns, cells, group, factor)


@compiled_in_place
def divides_scattered(
    columns: Columns, cells: Cells, value: int, axis: int, factor: int
) -> bool:
    """Whether an axis size still divides the dims of a value that contain a factor.

    Reduce-scatters have split some of these dims further.
    """
    first = columns.ports[value]
    for dim in range(first, columns.ports[value + 1]):
        if has_factor(columns, dim, factor) and not can_scatter(
            columns, cells, value, dim - first, axis
        ):
            return False
    return True


@compiled_in_place
def can_scatter(
    columns: Columns, cells: Cells, value: int, dim: int, axis: int
) -> bool:
    """Whether an axis size divides the part of a value's dim that a device has."""
    group, sums = columns.makers[value], 2 * num_groups(columns)
    parts = columns.axis_sizes[axis]
    place = columns.ports[value] + dim
    for at in span(columns.names_at, place):
        parts *= parts_of(columns, cells, group, columns.names[at])
    for other in range(len(columns.axis_sizes)):
        if cells[sums + value, other] == dim:
            parts *= columns.axis_sizes[other]
    return columns.extents[place] % parts == 0


@compiled_in_place
def lines_up(columns: Columns, cells: Cells, group: int, factor: int) -> bool:
    """Whether parts of dims that are products stay contiguous if `factor` is split.

    All dims of the group's operands and results are checked.
    """
    values = num_values(columns)
    for value in span(columns.values_at, group):
        if not port_lines_up(columns, cells, group, value, factor):
            return False
    for operand in span(columns.operands_at, group):
        if not port_lines_up(columns, cells, group, values + operand, factor):
            return False
    return True


@compiled_in_place
def port_lines_up(
    columns: Columns, cells: Cells, group: int, port: int, factor: int
) -> bool:
    """The answer of `lines_up` for one value or operand.

    A minor factor can be split only if all more major factors are split completely.
    """
    for dim in range(columns.ports[port], columns.ports[port + 1]):
        is_major = has_factor(columns, dim, factor)
        is_minor = False
        for at in span(columns.names_at, dim):
            other = columns.names[at]
            if is_minor and num_cuts(columns, cells, group, other) > 0:
                return False
            if is_major and other == factor:
                is_major, is_minor = False, True
            whole = columns.sizes[columns.factors_at[group] + other]
            if is_major and parts_of(columns, cells, group, other) != whole:
                return False
    return True


@compiled_in_place
def write_legal_cuts(columns: Columns, cells: Cells, cuts: Ints, found: Ints) -> int:
    """Write the indices of the legal cuts into `found`, and return how many there are.

    cuts: rows of (group, axis, factor, number of parts), [N, 4]; a cut is legal if the
        number divides the extent. It is the size of the axis, or that of the undivided mesh
        axis if this is the first of its sub-axes, which is tried for all of them.
    """
    count = 0
    for i in range(len(cuts)):
        group, axis, factor, size = cuts[i]
        if may_cut(columns, cells, group, axis, factor):
            extent = columns.sizes[columns.factors_at[group] + factor]
            if extent % (size * parts_of(columns, cells, group, factor)) == 0:
                found[count] = i
                count += 1
    return count

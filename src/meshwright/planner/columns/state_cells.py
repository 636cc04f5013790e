"""Search states as arrays of cells: one row for each decision, one column for each axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.partitioner.propagate import Graph, State
from meshwright.planner.columns.graph_columns import VALUES_AT, Columns
from meshwright.planner.strategies.symmetry import ReducedGraph

type Cells = NDArray[np.int16]
"""A state, [rows, A]; `CellRows` says what each row holds."""


class CellRows(NamedTuple):
    """First row of each part of the cells of a state.

    From 0: the factor of each group that an axis cuts, or -1. From `ranks`: the position
    of the axis among the axes that cut this factor. From `sums`: the dim on which the
    partial sum of a value is scattered, or -1. From `requests`: bit mask of the dims on
    which readers want a value cut. At `total`: the number of scattered sums.
    """

    ranks: int
    sums: int
    requests: int
    total: int
    end: int

    @classmethod
    def of(cls, columns: Columns) -> CellRows:
        """The layout for the states of these columns."""
        groups, values = len(columns.groups) - 1, len(columns.values) - 1
        total = 2 * groups + 2 * values
        return cls(groups, 2 * groups, 2 * groups + values, total, total + 1)


def start_cells(columns: Columns, state: State, reduced: ReducedGraph) -> Cells:
    """The cells of a propagation state.

    The first member of each group speaks for the group; requests are those of all members.
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
    numbers = dict(_result_numbers(state.graph, columns, reduced))
    for (value, axis), dim in state.scattered.items():
        cells[rows.sums + numbers[value], axes.index(axis)] = dim
    for (value, axis), dims in state.requests.items():
        for dim in dims:
            cells[rows.requests + numbers[value], axes.index(axis)] |= 1 << dim
    cells[rows.total, 0] = (cells[rows.sums : rows.requests] >= 0).sum()
    cells.flags.writeable = False
    return cells


def _result_numbers(
    graph: Graph, columns: Columns, reduced: ReducedGraph
) -> Iterator[tuple[int, int]]:
    """The number of the group's result for each value of the graph."""
    for node in graph.nodes:
        first = int(columns.groups[reduced.class_of[node.index], VALUES_AT])
        for result, (value, _) in enumerate(node.outs):
            yield value, first + result

"""Repair of a solution: change choices one by one until the memory limit holds."""

import numpy as np

from meshwright.search.arrays import Floats, Ints
from meshwright.search.assignment.problem.memory_rows import Segments
from meshwright.search.assignment.problem.reduced_problem import (
    CostGraph,
    strides_at,
)
from meshwright.search.compiled import compiled

_STEPS = 300  # limit on the changes of one repair


@compiled
def repair(
    graph: CostGraph, costs: Floats, segments: Segments, left: Floats, choices: Ints
) -> bool:
    """Change choices in place until they fit into memory; returns whether they fit.

    Each change is the one of least cost per byte freed at the memory row that is
    exceeded most.
    left: slack that the choices leave at each row; updated in place.
    """
    starts, excess = graph.starts, segments.excess
    for _ in range(_STEPS):
        row = 0
        for r in range(len(left)):
            if left[r] < left[row]:
                row = r
        if left[row] >= 0:
            return True
        best_score = np.inf
        best_node, best_choice = -1, -1
        for i in range(len(starts) - 1):
            s = segment_at(segments, i, row)
            if s < 0 or excess[segments.block_starts[s] + choices[i]] <= 0:
                continue
            block = segments.block_starts[s]
            change = change_costs(graph, costs, choices, i)
            for k in range(starts[i + 1] - starts[i]):
                freed = excess[block + choices[i]] - excess[block + k]
                freed = min(freed, -left[row])
                if freed > 0 and change[k] < best_score * freed:
                    best_score = change[k] / freed
                    best_node, best_choice = i, k
        if best_node < 0:
            return False
        free_rows(segments, best_node, choices[best_node], best_choice, left)
        choices[best_node] = best_choice
    return False


@compiled
def segment_at(segments: Segments, node: int, row: int) -> int:
    """The segment of a node that contains a row; -1 if the row is before all segments.

    A segment is a range of memory rows over which the node's excess is constant.
    """
    first = segments.starts[node]
    rows = segments.rows[first : segments.starts[node + 1]]
    found = np.searchsorted(rows, row, side="right")
    return first + found - 1 if found else -1


@compiled
def free_rows(segments: Segments, node: int, old: int, new: int, left: Floats) -> None:
    """Add to `left` (slack per row) the memory freed by a change of a node's choice."""
    for s in range(segments.starts[node], segments.starts[node + 1]):
        block = segments.block_starts[s]
        freed = segments.excess[block + old] - segments.excess[block + new]
        for row in range(segments.rows[s], segments.ends[s]):
            left[row] += freed


@compiled
def change_costs(graph: CostGraph, costs: Floats, choices: Ints, node: int) -> Floats:
    """Change of the total cost by each choice of a node, if all other nodes stay."""
    first_choice = graph.starts[node]
    width = graph.starts[node + 1] - first_choice
    total = np.empty(width)
    for k in range(width):
        total[k] = costs[first_choice + k]
    for at in range(graph.edge_starts[node], graph.edge_starts[node + 1]):
        e = graph.edges[at]
        step, stride, j = strides_at(graph, e, node)
        first = graph.table_starts[e] + choices[j] * stride
        for k in range(width):
            total[k] += graph.tables[first + k * step]
    now = total[choices[node]]
    for k in range(width):
        total[k] -= now
    return total

"""Repair: choices are changed one by one until memory suffices at every row."""

from __future__ import annotations

import numpy as np

from meshwright.search.assignment.compiled import Floats, Ints, compiled
from meshwright.search.assignment.graph import Graph
from meshwright.search.assignment.memory import Memory

_STEPS = 300  # one-node changes at a time


def repair(
    graph: Graph, costs: Floats, memory: Memory, left: Floats, choices: Ints
) -> bool:
    """Make the choices fit, in place, at little cost; whether that succeeded.

    left: the slack that the choices leave at each row; changed, too
    """
    return bool(
        relieve(
            graph, costs, memory.seg_starts, memory.seg_rows, memory.block_starts,
            memory.excess, left, choices, _STEPS,
        )
    )  # fmt: skip


@compiled
def relieve(
    graph: Graph,
    costs: Floats,
    seg_starts: Ints,
    seg_rows: Ints,
    block_starts: Ints,
    excess: Floats,
    left: Floats,
    choices: Ints,
    steps: int,
) -> bool:
    """While the worst row overflows: the change that costs least per byte it frees."""
    starts = graph.starts
    for _ in range(steps):
        row = np.argmin(left)
        if left[row] >= 0:
            return True
        best_score = np.inf
        best_node, best_choice = -1, -1
        for i in range(len(starts) - 1):
            if seg_starts[i] == seg_starts[i + 1] or seg_rows[seg_starts[i]] > row:
                continue
            part = seg_rows[seg_starts[i] : seg_starts[i + 1]]
            s = seg_starts[i] + np.searchsorted(part, row, side="right") - 1
            old = excess[block_starts[s] + choices[i]]
            if old <= 0:
                continue
            change = change_costs(graph, costs, choices, i)
            for k in range(starts[i + 1] - starts[i]):
                freed = min(old - excess[block_starts[s] + k], -left[row])
                if freed > 0 and change[k] / freed < best_score:
                    best_score = change[k] / freed
                    best_node, best_choice = i, k
        if best_node < 0:
            return False
        i, old_choice = best_node, choices[best_node]
        for s in range(seg_starts[i], seg_starts[i + 1]):
            end = seg_rows[s + 1] if s + 1 < seg_starts[i + 1] else len(left)
            block = block_starts[s]
            left[seg_rows[s] : end] += (
                excess[block + old_choice] - excess[block + best_choice]
            )
        choices[i] = best_choice
    return False


@compiled
def change_costs(graph: Graph, costs: Floats, choices: Ints, node: int) -> Floats:
    """What each choice of a node would add to the cost, the others staying."""
    starts, ends = graph.starts, graph.ends
    width = starts[node + 1] - starts[node]
    total = costs[starts[node] : starts[node + 1]].copy()
    for at in range(graph.edge_starts[node], graph.edge_starts[node + 1]):
        e = graph.edges[at]
        j = ends[e, 0] + ends[e, 1] - node
        first, step = graph.table_starts[e] + choices[j] * width, 1
        if ends[e, 0] == node:
            first = graph.table_starts[e] + choices[j]
            step = starts[j + 1] - starts[j]
        for k in range(width):
            total[k] += graph.tables[first + k * step]
    return total - total[choices[node]]

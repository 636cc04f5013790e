"""Presolve: dominated choices and pairs are removed (dead-end elimination).

A choice is dominated by another that costs no more whatever the neighbours choose, and
takes no more memory at any time (Desmet et al., Nature 356, 1992). A pair of choices is
dominated if, given the neighbour's choice, another choice of the node is no worse whatever
the other neighbours choose. A leaf without memory keeps one choice per choice of its
neighbour, and is then merged with it.
"""

from __future__ import annotations

import numpy as np

from meshwright.search.arrays import Bools, Floats
from meshwright.search.assignment.problem.cost_graph import CostGraph, graph_of
from meshwright.search.assignment.problem.memory_rows import MemoryRows, Segments
from meshwright.search.assignment.problem.reduced_problem import ReducedProblem
from meshwright.search.compiled import compiled

_LARGEST = 5_000_000  # entries of one node's array `worst`; larger nodes are skipped


def drop_dominated(reduced: ReducedProblem, memory: MemoryRows) -> tuple[Bools, Floats]:
    """A mask of undominated choices, and tables in which dominated pairs are infinite.

    At least one optimal solution remains.
    """
    kept = reduced.costs < np.inf
    tables = reduced.tables.copy()
    graph = graph_of(reduced.starts, reduced.ends, reduced.table_starts, tables)
    drop_in_place(graph, reduced.costs, memory.segments, kept)
    return kept, tables


@compiled
def strides_at(graph: CostGraph, edge: int, node: int) -> tuple[int, int, int]:
    """Strides of an edge's table for a node and for its neighbour, and the neighbour."""
    i, j = int(graph.ends[edge, 0]), int(graph.ends[edge, 1])
    width = int(graph.starts[j + 1] - graph.starts[j])
    if node == i:
        return width, 1, j
    return 1, width, i


@compiled
def find_worst(
    graph: CostGraph, kept: Bools, edge: int, node: int, worst: Floats
) -> None:
    """Set `worst[k, q]`: the most an edge's cost rises if the node takes q, not k."""
    stride_k, stride_m, other = strides_at(graph, edge, node)
    start = graph.starts[node]
    width = graph.starts[node + 1] - start
    for k in range(width):
        for q in range(width):
            most = -np.inf
            if q != k and kept[start + k] and kept[start + q]:
                for m in range(graph.starts[other + 1] - graph.starts[other]):
                    at = graph.table_starts[edge] + m * stride_m
                    old = graph.tables[at + k * stride_k]
                    if kept[graph.starts[other] + m] and old < np.inf:
                        most = max(most, graph.tables[at + q * stride_k] - old)
            worst[k, q] = most


@compiled
def is_frugal(segments: Segments, node: int, k: int, q: int) -> bool:
    """Whether choice `q` takes no more memory than `k` at any time."""
    for s in range(segments.starts[node], segments.starts[node + 1]):
        block = segments.block_starts[s]
        if segments.excess[block + q] > segments.excess[block + k]:
            return False
    return True


@compiled
def is_less(new: float, old: float, is_first: bool) -> bool:
    """Whether `new` is less than `old`, or equal if `is_first`.

    A choice that justified an earlier removal may be removed itself. Replacements must
    therefore never form a cycle, neither by ties nor by rounding.
    """
    if is_first:
        return new <= old
    return new < old - 1e-12 * max(abs(new), abs(old))


@compiled
def drop_pairs(
    graph: CostGraph, edge: int, node: int, k: int, q: int, rest: float
) -> None:
    """Forbid pairs with `k` where `q` is allowed and, with `rest` added, costs no more."""
    stride_k, stride_m, other = strides_at(graph, edge, node)
    for m in range(graph.starts[other + 1] - graph.starts[other]):
        at = graph.table_starts[edge] + m * stride_m
        new = float(graph.tables[at + q * stride_k])
        old = float(graph.tables[at + k * stride_k])
        if new < np.inf and is_less(rest + new, old, q < k):
            graph.tables[at + k * stride_k] = np.inf


@compiled
def drop_in_place(  # noqa: C901  one loop over nodes, choices and edges
    graph: CostGraph, costs: Floats, segments: Segments, kept: Bools
) -> None:
    """Remove dominated choices from `kept` and forbid dominated pairs, in place."""
    for i in range(len(graph.starts) - 1):
        start = graph.starts[i]
        width = graph.starts[i + 1] - start
        first = graph.edge_starts[i]
        degree = graph.edge_starts[i + 1] - first
        if width * width * degree > _LARGEST or width == 1:
            continue
        worst = np.empty((degree, width, width))
        for d in range(degree):
            find_worst(graph, kept, int(graph.edges[first + d]), i, worst[d])
        for k in range(width):
            for q in range(width):
                if k == q or not (kept[start + k] and kept[start + q]):
                    continue
                if not is_frugal(segments, i, k, q):
                    continue
                total = costs[start + q] - costs[start + k]
                num_infinite = 0  # edges that forbid `q` for some choice
                for d in range(degree):
                    if worst[d, k, q] == np.inf:
                        num_infinite += 1
                    else:
                        total += worst[d, k, q]
                if num_infinite == 0 and is_less(float(total), 0.0, q < k):
                    kept[start + k] = False
                if not kept[start + k] or num_infinite > 1 or total == -np.inf:
                    continue
                for d in range(degree):
                    is_infinite = worst[d, k, q] == np.inf
                    if num_infinite == 0 or is_infinite:
                        rest = float(total)
                        if not is_infinite:
                            rest -= float(worst[d, k, q])
                        drop_pairs(graph, int(graph.edges[first + d]), i, k, q, rest)

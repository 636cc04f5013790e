"""Presolve by exchange: what can always be replaced by something no worse goes.

A choice is dominated by another that costs no more, whatever the neighbours choose,
and takes no more memory at any time (dead-end elimination: Desmet et al., Nature 356,
1992). Under one choice of one neighbour, only the other neighbours may be unfavourable:
then the pair goes. A leaf without memory keeps one choice for each of its neighbour's,
and follows it.
"""

from __future__ import annotations

import numpy as np

from meshwright.search.assignment.compiled import Bools, Floats, Ints, compiled
from meshwright.search.assignment.graph import graph_of
from meshwright.search.assignment.kernel import Kernel
from meshwright.search.assignment.memory import Memory


def drop_dominated(kernel: Kernel, memory: Memory) -> tuple[Bools, Floats]:
    """A mask of choices that suffice, and tables in which pairs that need not be are inf.

    Some optimum uses only what is left.
    """
    kept = kernel.costs < np.inf
    tables = kernel.tables.copy()
    graph = graph_of(kernel.starts, kernel.ends, kernel.table_starts, tables)
    exchange(
        kernel.starts, kernel.costs, kernel.ends, kernel.table_starts, tables,
        graph.edge_starts, graph.edges, memory.seg_starts, memory.block_starts, memory.excess, kept,
    )  # fmt: skip
    return kept, tables


@compiled
def worst_differences(
    starts: Ints,
    ends: Ints,
    table_starts: Ints,
    tables: Floats,
    kept: Bools,
    edge: int,
    node: int,
    worst: Floats,
) -> None:
    """Set `worst[k, q]`: the most that `q` instead of `k` at the node adds on an edge."""
    i, j = ends[edge]
    step_k, step_m, other = 1, starts[j + 1] - starts[j], i
    if node == i:
        step_k, step_m, other = step_m, 1, j
    width = starts[node + 1] - starts[node]
    first = table_starts[edge]
    for k in range(width):
        for q in range(width):
            most = -np.inf
            if q != k and kept[starts[node] + k] and kept[starts[node] + q]:
                for m in range(starts[other + 1] - starts[other]):
                    at = first + m * step_m
                    old = tables[at + k * step_k]
                    if kept[starts[other] + m] and old < np.inf:
                        most = max(most, tables[at + q * step_k] - old)
            worst[k, q] = most


@compiled
def is_frugal(first: Ints, excess: Floats, k: int, q: int) -> bool:
    """Whether choice `q` takes no more than `k` in any of the blocks."""
    for block in first:
        if excess[block + q] > excess[block + k]:
            return False
    return True


@compiled
def is_less(new: float, old: float, is_first: bool) -> bool:
    """Whether what replaces is less, or as much and first.

    What is dropped at a node may have justified other drops there, so that replacing
    must come to an end: it never leads back, not by ties, nor by rounding either.
    """
    if is_first:
        return new <= old
    return new < old - 1e-12 * max(abs(new), abs(old))


@compiled
def exchange(
    starts: Ints,
    costs: Floats,
    ends: Ints,
    table_starts: Ints,
    tables: Floats,
    edge_starts: Ints,
    edges: Ints,
    seg_starts: Ints,
    block_starts: Ints,
    excess: Floats,
    kept: Bools,
) -> None:
    """Drop dominated choices from `kept` and dominated pairs from `tables`, in place."""
    for i in range(len(starts) - 1):
        width = starts[i + 1] - starts[i]
        degree = edge_starts[i + 1] - edge_starts[i]
        if width * width * degree > 5_000_000 or width == 1:
            continue
        worst = np.empty((degree, width, width))
        for d in range(degree):
            worst_differences(
                starts, ends, table_starts, tables, kept,
                edges[edge_starts[i] + d], i, worst[d],
            )  # fmt: skip
        first = block_starts[seg_starts[i] : seg_starts[i + 1]]
        for k in range(width):
            for q in range(width):
                if k == q or not kept[starts[i] + k] or not kept[starts[i] + q]:
                    continue
                if not is_frugal(first, excess, k, q):
                    continue
                gain = costs[starts[i] + q] - costs[starts[i] + k]
                total = gain
                hopeless = 0
                for d in range(degree):
                    if worst[d, k, q] == np.inf:
                        hopeless += 1
                    else:
                        total += worst[d, k, q]
                if hopeless == 0 and is_less(total, 0.0, q < k):
                    kept[starts[i] + k] = False
                    continue
                if hopeless > 1 or np.isnan(total):
                    continue
                for d in range(degree):
                    if hopeless == 1 and worst[d, k, q] < np.inf:
                        continue
                    others = total
                    if hopeless == 0:
                        others = gain
                        for f in range(degree):
                            if f != d:
                                others += worst[f, k, q]
                    e = edges[edge_starts[i] + d]
                    a, b = ends[e]
                    step_k, step_m, other = 1, starts[b + 1] - starts[b], a
                    if a == i:
                        step_k, step_m, other = step_m, 1, b
                    for m in range(starts[other + 1] - starts[other]):
                        at = table_starts[e] + m * step_m
                        new = tables[at + q * step_k]
                        old = tables[at + k * step_k]
                        if new < np.inf and is_less(others + new, old, q < k):
                            tables[at + k * step_k] = np.inf

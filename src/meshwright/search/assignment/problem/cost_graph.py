"""Flat arrays of nodes and edges for the compiled inner loops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.search.arrays import Floats, Ints, starts_of
from meshwright.search.assignment.problem.reduced_problem import ReducedProblem
from meshwright.search.compiled import compiled


class CostGraph(NamedTuple):
    """Flat arrays of a pairwise cost graph, with the edges of each node.

    starts, ends, table_starts, tables: as in `ReducedProblem`
    edge_starts: start of the edges of each node in `edges`, [N + 1]
    edges: edge numbers, sorted by node, [2 E]
    """

    starts: Ints
    ends: Ints
    table_starts: Ints
    tables: Floats
    edge_starts: Ints
    edges: Ints


def graph_of(starts: Ints, ends: Ints, table_starts: Ints, tables: Floats) -> CostGraph:
    """The cost graph over given tables."""
    nodes = ends.T.ravel()
    edges = np.tile(np.arange(len(ends)), 2)
    counts = np.bincount(nodes, minlength=len(starts) - 1)
    ordered = edges[np.argsort(nodes, kind="stable")]
    return CostGraph(starts, ends, table_starts, tables, starts_of(counts), ordered)


def finite_graph(reduced: ReducedProblem, penalty: float) -> CostGraph:
    """The cost graph of a reduced problem, where forbidden pairs cost `penalty`."""
    tables = np.where(reduced.tables < np.inf, reduced.tables, penalty)
    return graph_of(reduced.starts, reduced.ends, reduced.table_starts, tables)


@compiled
def ball(graph: CostGraph, node: int, size: int, seed: int) -> Ints:
    """At most `size` nodes nearest to a node, breadth first in random order."""
    found = np.empty(size, np.int64)
    seen = np.zeros(len(graph.starts) - 1, np.bool_)
    found[0] = node
    seen[node] = True
    count = 1
    at = 0
    while at < count:
        i = found[at]
        first = graph.edge_starts[i]
        degree = graph.edge_starts[i + 1] - first
        seed = (seed * 1103515245 + 12345) % 2147483648  # the C standard's generator
        for step in range(degree):
            e = graph.edges[first + (seed // 65536 + step) % degree]
            j = graph.ends[e, 0] + graph.ends[e, 1] - i
            if not seen[j] and count < size:
                seen[j] = True
                found[count] = j
                count += 1
        at += 1
    return found[:count]

"""The reduced problem: an assignment problem after presolve.

It has a map from the original nodes to its own, and back from its choices.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from meshwright.search.arrays import Floats, Ints, ranges, starts_of
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.compiled import compiled_in_place


class CostGraph(NamedTuple):
    """A graph with a table of pairwise costs per edge, and the edges of each node.

    The arrays are flat; N is the number of nodes, E of edges.
    starts, ends, table_starts, tables: as in `Assignment`
    edge_starts: offset of each node's edges in `edges`, [N + 1]
    edges: edge numbers, sorted by node, [2 E]
    """

    starts: Ints
    ends: Ints
    table_starts: Ints
    tables: Floats
    edge_starts: Ints
    edges: Ints

    def pairs(self, choices: Ints) -> Ints:
        """Index in `tables` of the pair of choices at the ends of each edge."""
        one, two = self.ends.T
        columns = np.diff(self.starts)[two]
        return self.table_starts[:-1] + choices[one] * columns + choices[two]


def graph_of(starts: Ints, ends: Ints, table_starts: Ints, tables: Floats) -> CostGraph:
    """The cost graph with these edge tables; finds the edges of each node."""
    nodes = ends.T.ravel()
    edges = np.tile(np.arange(len(ends)), 2)
    counts = np.bincount(nodes, minlength=len(starts) - 1)
    ordered = edges[np.argsort(nodes, kind="stable")]
    return CostGraph(starts, ends, table_starts, tables, starts_of(counts), ordered)


@compiled_in_place
def strides_at(graph: CostGraph, edge: int, node: int) -> tuple[int, int, int]:
    """Strides of an edge's table for a node and for its neighbour on the edge.

    The third result is the neighbour.
    """
    i, j = int(graph.ends[edge, 0]), int(graph.ends[edge, 1])
    width = int(graph.starts[j + 1] - graph.starts[j])
    if node == i:
        return width, 1, j
    return 1, width, i


class ChoiceMaps(NamedTuple):
    """A map from the nodes of a problem to fewer new nodes, and of choices back.

    It is the result of merging nodes. Choosing for a new node determines the choices of
    all old nodes that it represents.
    owner: the new node that represents each old node, [N]
    starts, picks: for each old node, its choice under each choice of its owner; `picks`
        is flat, `starts` has the offset of each node
    """

    owner: Ints
    starts: Ints
    picks: Ints


@dataclass(frozen=True, slots=True, eq=False)
class ReducedProblem:
    """An assignment problem whose nodes each represent a group of original nodes.

    Two nodes have at most one edge, except in the result of `whole`.
    costs: cost of each choice, as in `Assignment`.
    maps: map from the original nodes to the nodes of `graph`.
    """

    graph: CostGraph
    costs: Floats
    maps: ChoiceMaps

    @classmethod
    def whole(cls, problem: Assignment) -> ReducedProblem:
        """The whole problem as a reduced one, in which each node represents itself."""
        starts = problem.starts.copy()  # a copy: numba types read-only arrays apart
        ends, table_starts = problem.ends.copy(), problem.table_starts.copy()
        graph = graph_of(starts, ends, table_starts, problem.tables.copy())
        picks = np.arange(starts[-1]) - np.repeat(starts[:-1], np.diff(starts))
        maps = ChoiceMaps(np.arange(problem.num_nodes), starts, picks)
        return cls(graph, problem.costs.copy(), maps)

    @property
    def num_nodes(self) -> int:
        return len(self.graph.starts) - 1

    @property
    def widths(self) -> Ints:
        """The number of choices of each node."""
        return np.diff(self.graph.starts)

    @property
    def penalty(self) -> float:
        """A finite cost for forbidden pairs: more than solutions can differ by."""
        finite = self.graph.tables[self.graph.tables < np.inf]
        return 10 * float(np.abs(self.costs).sum() + np.abs(finite).sum()) + 1

    def lift(self, choices: Ints) -> Ints:
        """The choices of all original nodes, given the choices of the reduced nodes."""
        maps = self.maps
        return maps.picks[maps.starts[:-1] + choices[maps.owner]]

    def nearest(self, choices: Ints) -> Ints:
        """The choice of each reduced node that agrees with most of its original nodes.

        choices: choices of the original nodes.
        """
        maps, starts = self.maps, self.graph.starts
        agree = maps.picks == np.repeat(choices, np.diff(maps.starts))
        at = ranges(starts[maps.owner], self.widths[maps.owner])
        votes = np.bincount(at, agree, minlength=len(self.costs))
        best = [np.argmax(votes[a:b]) for a, b in pairwise(starts)]
        return np.array(best, np.int64)

    def cost(self, choices: Ints) -> float:
        """Cost of these choices of the reduced nodes.

        It equals the cost of the lifted choices in the original problem.
        """
        graph, nodes = self.graph, self.graph.starts[:-1] + choices
        pairs = graph.pairs(choices)
        return float(self.costs[nodes].sum() + graph.tables[pairs].sum())


def finite_graph(reduced: ReducedProblem) -> CostGraph:
    """The cost graph of a reduced problem with `penalty` in place of infinite costs."""
    tables = reduced.graph.tables
    return reduced.graph._replace(
        tables=np.where(tables < np.inf, tables, reduced.penalty)
    )

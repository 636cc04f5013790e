"""One elimination over all nodes of a large graph, planned once and run often."""

from __future__ import annotations

import numpy as np

from meshwright.search.arrays import Floats, Ints
from meshwright.search.assignment.eliminate.buckets import eliminate, fixed_costs
from meshwright.search.assignment.eliminate.order import EliminationOrder
from meshwright.search.assignment.problem.cost_graph import CostGraph


class EliminationSweep:
    """Sets all nodes but those that the plan keeps to their optimum, given these."""

    def __init__(self, graph: CostGraph, plan: EliminationOrder) -> None:
        self.graph = graph
        self.order = plan.order
        num = len(graph.starts) - 1
        self.nodes = np.arange(num)
        self.rank = np.full(num, num)
        self.rank[plan.order] = np.arange(len(plan.order))
        self.scopes, self.sizes = padded(plan.scopes)

    def run(self, costs: Floats, choices: Ints) -> None:
        """Improve the choices in place."""
        unary = fixed_costs(
            self.graph, costs, self.nodes, self.nodes, self.rank, choices
        )
        picks = np.empty(len(self.order), np.int64)
        eliminate(
            self.graph, self.nodes, self.nodes, self.rank, self.order, self.scopes,
            self.sizes, unary, picks,
        )  # fmt: skip
        choices[self.order] = picks


def padded(scopes: tuple[tuple[int, ...], ...]) -> tuple[Ints, Ints]:
    """Scopes as a matrix, and their lengths."""
    sizes = np.array([len(s) for s in scopes], np.int64)
    matrix = np.zeros((len(sizes), max(1, int(sizes.max(initial=1)))), np.int64)
    for step, scope in enumerate(scopes):
        matrix[step, : len(scope)] = scope
    return matrix, sizes

"""Bucket elimination over all nodes of a large graph, ordered once and run often."""

from __future__ import annotations

import numpy as np

from meshwright.search.arrays import Floats, Ints
from meshwright.search.assignment.eliminate.buckets import (
    Elimination,
    eliminate,
    fixed_costs,
)
from meshwright.search.assignment.eliminate.order import EliminationOrder
from meshwright.search.assignment.problem.cost_graph import CostGraph


class EliminationSweep:
    """Optimal choices of all nodes in an order of elimination, given those of the rest."""

    def __init__(self, graph: CostGraph, plan: EliminationOrder) -> None:
        self.graph = graph
        nodes = np.arange(len(graph.starts) - 1)
        rank = ranks(plan.order, len(nodes))
        scopes, sizes = padded(plan.scopes)
        self.elimination = Elimination(nodes, nodes, plan.order, rank, scopes, sizes)

    def run(self, costs: Floats, choices: Ints) -> None:
        """Improve the choices in place."""
        elimination = self.elimination
        unary = fixed_costs(self.graph, costs, elimination, choices)
        picks = np.empty(len(elimination.order), np.int64)
        eliminate(self.graph, elimination, unary, picks)
        choices[elimination.order] = picks


def ranks(order: Ints, num: int) -> Ints:
    """Position of each of `num` nodes in an order; `num` if it is not in there."""
    rank = np.full(num, num)
    rank[order] = np.arange(len(order))
    return rank


def padded(scopes: tuple[tuple[int, ...], ...]) -> tuple[Ints, Ints]:
    """Scopes as a matrix, and their lengths."""
    sizes = np.array([len(s) for s in scopes], np.int64)
    matrix = np.zeros((len(sizes), max(1, int(sizes.max(initial=1)))), np.int64)
    for step, scope in enumerate(scopes):
        matrix[step, : len(scope)] = scope
    return matrix, sizes

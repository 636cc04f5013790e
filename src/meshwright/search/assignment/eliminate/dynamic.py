"""Exact dynamic programming for chains, trees and graphs of small tree-width."""

from __future__ import annotations

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.arrays import Ints
from meshwright.search.assignment.eliminate.order import plan_elimination
from meshwright.search.assignment.eliminate.sweep import EliminationSweep
from meshwright.search.assignment.presolve.merge import merge_followers
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.problem.cost_graph import finite_graph
from meshwright.search.assignment.problem.reduced_problem import ReducedProblem


def solve_dynamic(problem: Assignment, log_cap: float = 22.0) -> Ints:
    """Choices of least cost, whatever memory they take.

    log_cap: base-2 logarithm of the largest message.
    Raises AssignmentError if the tree-width asks for larger messages, or if every
    combination of choices is forbidden.
    """
    reduced = merge_followers(ReducedProblem.whole(problem))
    if reduced is None:
        raise AssignmentError("no solution: every combination of choices is forbidden")
    graph = finite_graph(reduced, reduced.penalty)
    plan = plan_elimination(graph, log_cap)
    kept = reduced.num_nodes - len(plan.order)
    if kept:
        raise AssignmentError(
            f"{kept} of {reduced.num_nodes} nodes need tables of more than 2**{log_cap:g} "
            "entries: this graph is not close enough to a tree"
        )
    choices = np.zeros(reduced.num_nodes, np.int64)
    EliminationSweep(graph, plan).run(reduced.costs, choices)
    return reduced.lift(choices)

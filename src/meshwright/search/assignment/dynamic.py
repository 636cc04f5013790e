"""Dynamic programming over all nodes at once: chains, trees, small tree-width."""

from __future__ import annotations

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.assignment.compiled import Ints
from meshwright.search.assignment.graph import finite_graph
from meshwright.search.assignment.kernel import Kernel
from meshwright.search.assignment.merge import merge_followers
from meshwright.search.assignment.order import plan_elimination
from meshwright.search.assignment.problem import Assignment
from meshwright.search.assignment.sweep import Sweep


def solve_dynamic(problem: Assignment, log_cap: float = 22.0) -> Ints:
    """Choices of least cost, whatever memory they take.

    log_cap: of the size of a table, to base 2. Raises AssignmentError where the
    tree-width asks for larger ones, or everything is forbidden.
    """
    kernel = merge_followers(Kernel.whole(problem))
    if kernel is None:
        raise AssignmentError("no solution: every combination of choices is forbidden")
    graph = finite_graph(kernel, kernel.penalty)
    plan = plan_elimination(graph, log_cap)
    kept = kernel.num_nodes - len(plan.order)
    if kept:
        raise AssignmentError(
            f"{kept} of {kernel.num_nodes} nodes need tables of more than 2**{log_cap:g} "
            "entries: this graph is not close enough to a tree"
        )
    choices = np.zeros(kernel.num_nodes, np.int64)
    Sweep(graph, plan).run(kernel.costs, choices)
    return kernel.lift(choices)

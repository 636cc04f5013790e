"""CP-SAT (OR-tools) on the plain integer program: an engine, and a baseline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from meshwright.search.assignment.linear import Floats, Ints, Linear, chosen, linearise
from meshwright.search.assignment.problem import Assignment

_LARGEST = 2.0**52  # of the sum of all costs: CP-SAT counts in 64-bit integers


def solve_cp_sat(
    problem: Assignment,
    budget_s: float,
    *,
    seed: int = 0,
    workers: int = 2,
    hint: Ints | None = None,
    on_found: Callable[[Ints], None] | None = None,
) -> tuple[Ints | None, float]:
    """The best choices found, None if none, and a lower bound of the cost.

    The time of building the model counts. Costs that are not whole are rounded to a
    millionth of a millionth of their sum, and the bound is lower by as much.
    """
    from ortools.sat.python import cp_model

    start_s = time.perf_counter()
    linear = linearise(problem)
    costs, scale = whole_costs(linear)
    model, variables = _model(linear, costs)
    if hint is not None:
        for node, choice in enumerate(hint):
            for k in range(problem.starts[node], problem.starts[node + 1]):
                model.add_hint(variables[k], int(k == problem.starts[node] + choice))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    left_s = budget_s - (time.perf_counter() - start_s)
    if left_s <= 0:
        return None, -np.inf
    solver.parameters.max_time_in_seconds = left_s

    class Watch(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            if on_found is not None:
                on_found(chosen(problem, _values(self, variables, linear)))

    status = solver.solve(model, Watch())
    if status == cp_model.INFEASIBLE:
        return None, np.inf
    rounding = 0.5 * (problem.num_nodes + len(problem.ends)) if scale != 1 else 0.0
    bound = (solver.best_objective_bound - rounding) / scale
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bound
    return chosen(problem, _values(solver, variables, linear)), bound


def whole_costs(linear: Linear) -> tuple[Floats, float]:
    """Costs as whole numbers, and what they were multiplied by."""
    if np.all(linear.costs == np.round(linear.costs)):
        return linear.costs, 1.0
    scale = 1e12 / max(np.abs(linear.costs).max(), 1e-300)
    return np.round(linear.costs * scale), scale


def _model(linear: Linear, costs: Floats) -> tuple[Any, list[Any]]:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    variables = [model.new_bool_var("") for _ in costs]
    for index in np.flatnonzero(~linear.allowed):
        model.add(variables[index] == 0)
    for matrix, limits, is_equal in (
        (linear.equal, linear.wanted, True),
        (linear.usage, linear.limits, False),
    ):
        ends = matrix.indptr
        for row in range(len(limits)):
            part = slice(ends[row], ends[row + 1])
            left = cp_model.LinearExpr.weighted_sum(
                [variables[c] for c in matrix.indices[part]],
                [int(v) for v in matrix.data[part]],
            )
            right = int(limits[row])
            model.add(left == right if is_equal else left <= right)
    paid = np.flatnonzero(costs)
    model.minimize(
        cp_model.LinearExpr.weighted_sum(
            [variables[c] for c in paid], [int(c) for c in costs[paid]]
        )
    )
    return model, variables


def _values(solver: Any, variables: list[Any], linear: Linear) -> Floats:
    return np.array([solver.value(v) for v in variables[: linear.num_choices]], float)

"""CP-SAT (OR-tools) on the linearised problem: a model that runs and stops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.arrays import Floats, Ints
from meshwright.search.assignment.solvers.linear import (
    BinaryProgram,
)


class CpSatModel:
    """A CP-SAT model of an assignment problem that can be run and stopped.

    If costs are not whole they are rounded to 1e-12 of the largest, and the bound is
    lowered by the largest total rounding error.
    """

    def __init__(self, linear: BinaryProgram, seed: int, workers: int) -> None:
        from ortools.sat.python import cp_model

        self.linear = linear
        costs, self.scale = whole_costs(linear)
        self.model, self.variables = _model(linear, costs)
        self.solver = cp_model.CpSolver()
        self.solver.parameters.num_workers = workers
        self.solver.parameters.random_seed = seed

    def hint(self, choices: Ints) -> None:
        """Start from these choices: the indices of the variables that are 1."""
        ones = set(choices.tolist())
        for index in range(self.linear.num_choices):
            self.model.add_hint(self.variables[index], index in ones)

    def stop(self) -> None:
        """End the run; safe from other threads."""
        self.solver.stop_search()

    def run(
        self, budget_s: float, on_found: Callable[[Floats], None]
    ) -> tuple[Floats | None, float]:
        """Values of the choice variables, `None` if none were found, and a lower bound."""
        from ortools.sat.python import cp_model

        if budget_s <= 0:
            return None, -np.inf
        self.solver.parameters.max_time_in_seconds = budget_s
        read = self._read

        class Watch(cp_model.CpSolverSolutionCallback):
            def on_solution_callback(self) -> None:
                on_found(read(self))

        status = self.solver.solve(self.model, Watch())
        if status == cp_model.INFEASIBLE:
            return None, np.inf
        rounding = 0.0 if self.scale == 1 else 0.5 * len(self.linear.wanted)
        bound = (self.solver.best_objective_bound - rounding) / self.scale
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, bound
        return self._read(self.solver), bound

    def _read(self, solver: Any) -> Floats:
        variables = self.variables[: self.linear.num_choices]
        return np.array([solver.value(v) for v in variables], float)


def whole_costs(linear: BinaryProgram) -> tuple[Floats, float]:
    """Costs as whole numbers, and the factor by which they were multiplied."""
    if np.all(linear.costs == np.round(linear.costs)):
        return linear.costs, 1.0
    scale = 1e12 / max(np.abs(linear.costs).max(), 1e-300)
    return np.round(linear.costs * scale), scale


def _model(linear: BinaryProgram, costs: Floats) -> tuple[Any, list[Any]]:
    from ortools.sat.python import cp_model

    if np.any(linear.usage.data != np.round(linear.usage.data)):
        raise AssignmentError("CP-SAT takes whole usages only: scale and round them")
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
            right = math.floor(limits[row])
            model.add(left == right if is_equal else left <= right)
    paid = np.flatnonzero(costs)
    model.minimize(
        cp_model.LinearExpr.weighted_sum(
            [variables[c] for c in paid], [int(c) for c in costs[paid]]
        )
    )
    return model, variables

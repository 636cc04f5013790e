"""CP-SAT and HiGHS on the whole linearised problem: baselines for the solver."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ortools.sat.python import cp_model
from scipy import sparse

from meshwright.errors import AssignmentError
from meshwright.search.arrays import Floats, Ints, owners_of, ranges
from meshwright.search.assignment import Assignment
from meshwright.search.assignment.solvers.highs_child import minimise
from meshwright.search.assignment.solvers.proofs import (
    BinaryProgram,
    chosen,
    linearise,
)


def solve_cp_sat(
    problem: Assignment,
    budget_s: float,
    *,
    seed: int = 0,
    workers: int = 2,
    on_found: Callable[[Ints], None] | None = None,
) -> tuple[Ints | None, float]:
    """Best choices found, `None` if none, and a lower bound on the cost.

    The budget includes the time to build the model. CP-SAT takes integers. Usages have
    to be whole numbers. Costs that are not are scaled so that the largest is 1e12, and
    rounded; the lower bound is reduced by the largest possible sum of rounding errors.
    """
    start_s = time.perf_counter()
    program = _with_memory(problem)
    costs, scale = _whole_costs(program)
    model, variables = _model(program, costs)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    left_s = budget_s - (time.perf_counter() - start_s)
    if left_s <= 0:
        return None, -np.inf
    solver.parameters.max_time_in_seconds = left_s

    def read(source: Any) -> Ints:
        values = [source.value(v) for v in variables[: program.num_choices]]
        return chosen(problem.starts, np.array(values, float))

    class Watch(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            if on_found is not None:
                on_found(read(self))

    status = solver.solve(model, Watch())
    if status == cp_model.INFEASIBLE:
        return None, np.inf
    rounding = 0.0 if scale == 1 else 0.5 * len(program.wanted)
    bound = (solver.best_objective_bound - rounding) / scale
    is_solved = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return read(solver) if is_solved else None, bound


def solve_highs(problem: Assignment, budget_s: float) -> tuple[Ints | None, float]:
    """Best choices found, `None` if none, and a lower bound on the cost.

    The budget includes the time to build the model.
    """
    start_s = time.perf_counter()
    parts = tuple(_with_memory(problem))
    left_s = budget_s - (time.perf_counter() - start_s)
    if left_s <= 0:
        return None, -np.inf
    values, bound = minimise(parts, left_s)
    return None if values is None else chosen(problem.starts, values), bound


def _with_memory(problem: Assignment) -> BinaryProgram:
    """The integer program with a row for each maximal set of overlapping live ranges.

    Such a set is complete at a birth that is followed by a death before the next birth.
    """
    program = linearise(problem, problem.costs)
    live = np.flatnonzero(problem.lives[:, 0] < problem.lives[:, 1])
    if problem.limit is None or not len(live):
        return program
    births, deaths = problem.lives[live].T
    times = np.unique(births)
    upto = np.append(times[1:], np.iinfo(np.int64).max)
    dying = np.searchsorted(np.sort(deaths), [times, upto], side="right")
    times = times[dying[1] > dying[0]]
    from_row = np.searchsorted(times, births)
    to_row = np.searchsorted(times, deaths)
    owners = owners_of(problem.starts)
    spans = np.zeros((2, problem.num_nodes), np.int64)
    spans[:, live] = from_row, to_row
    counts = (spans[1] - spans[0])[owners]
    columns = np.repeat(np.arange(len(problem.costs)), counts)
    rows = ranges(spans[0][owners], counts)
    shape = len(times), len(program.costs)
    usage = sparse.csr_array((problem.usages[columns], (rows, columns)), shape=shape)
    limits = np.full(len(times), float(problem.limit))
    return program._replace(usage=usage, limits=limits)


def _whole_costs(program: BinaryProgram) -> tuple[Floats, float]:
    """The costs as integers, and the factor by which they were multiplied for this."""
    if np.all(program.costs == np.round(program.costs)):
        return program.costs, 1.0
    scale = 1e12 / max(np.abs(program.costs).max(), 1e-300)
    return np.round(program.costs * scale), scale


def _model(program: BinaryProgram, costs: Floats) -> tuple[Any, list[Any]]:
    if np.any(program.usage.data != np.round(program.usage.data)):
        raise AssignmentError("CP-SAT takes whole usages only: scale and round them")
    model = cp_model.CpModel()
    variables = [model.new_bool_var("") for _ in costs]
    for index in np.flatnonzero(~program.allowed):
        model.add(variables[index] == 0)
    for matrix, limits, is_equal in (
        (program.equal, program.wanted, True),
        (program.usage, program.limits, False),
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

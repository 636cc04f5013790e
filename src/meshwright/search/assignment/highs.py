"""HiGHS (by way of SciPy) on the plain integer program: an engine, and a baseline."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from meshwright.search.assignment.linear import Floats, Ints, chosen, linearise
from meshwright.search.assignment.problem import Assignment


def solve_highs(problem: Assignment, budget_s: float) -> tuple[Ints | None, float]:
    """The best choices found, None if none, and a lower bound of the cost.

    The time of building the model counts.
    """
    from scipy import optimize

    start_s = time.perf_counter()
    linear = linearise(problem)
    constraints = [_rows(linear.equal, linear.wanted, linear.wanted)]
    if len(linear.limits):
        constraints.append(
            _rows(linear.usage, np.full(len(linear.limits), -np.inf), linear.limits)
        )
    is_choice = np.arange(len(linear.costs)) < linear.num_choices
    left_s = budget_s - (time.perf_counter() - start_s)
    if left_s <= 0:
        return None, -np.inf
    found = optimize.milp(
        linear.costs,
        constraints=constraints,
        bounds=_zero_or_one(linear.allowed),
        integrality=is_choice,  # pairs follow
        options={"time_limit": left_s, "mip_rel_gap": 0.0},
    )
    if found.status == 2:
        return None, np.inf
    bound = -np.inf if found.mip_dual_bound is None else float(found.mip_dual_bound)
    return (None if found.x is None else chosen(problem.starts, found.x)), bound


def _rows(matrix: sparse.csr_array, least: Floats, most: Floats) -> Any:
    """Rows of a matrix with bounds; the stubs of SciPy take one bound for all."""
    from scipy import optimize

    make: Any = optimize.LinearConstraint
    return make(matrix, least, most)


def _zero_or_one(allowed: NDArray[np.bool_]) -> Any:
    from scipy import optimize

    make: Any = optimize.Bounds
    return make(0, allowed.astype(float))

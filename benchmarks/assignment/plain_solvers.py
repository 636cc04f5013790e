"""CP-SAT and HiGHS on the whole linearised problem: baselines for the solver."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy import sparse

from meshwright.search.arrays import Floats, Ints, owners_of, ranges
from meshwright.search.assignment import Assignment
from meshwright.search.assignment.solvers.highs_child import minimise
from meshwright.search.assignment.solvers.proofs import (
    BinaryProgram,
    CpSatModel,
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

    The budget includes the time to build the model. Usages have to be whole numbers.
    """
    start_s = time.perf_counter()
    model = CpSatModel(_with_memory(problem), seed, workers)
    left_s = budget_s - (time.perf_counter() - start_s)

    def report(values: Floats) -> None:
        if on_found is not None:
            on_found(chosen(problem.starts, values))

    values, bound = model.run(left_s, report)
    return None if values is None else chosen(problem.starts, values), bound


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

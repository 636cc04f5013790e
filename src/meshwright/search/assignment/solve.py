"""Entry point of the integer-program solver: `solve` finds one choice per node."""

import math
from collections.abc import Callable

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.assignment.incumbent.solution import (
    Clock,
    Progress,
    Solution,
    SolveOptions,
)
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.work import REAL_TIME, Meter

_DEFAULTS = SolveOptions()


def solve(
    problem: Assignment,
    budget_s: float,
    seed: int = 0,
    *,
    options: SolveOptions = _DEFAULTS,
    on_progress: Callable[[Progress], None] | None = None,
    meter: Meter = REAL_TIME,
) -> Solution:
    """Find the choices of least cost within a budget in seconds, or until Ctrl-C.

    The solve ends early once the cost is proven optimal, or to be within the gap of
    `options`. Small problems give the same result on each run. On large problems two
    threads search, and what they find by the deadline depends on the clock. With a
    limit on rounds, and a `WorkMeter` for the seconds, every run of any problem gives
    the same result. Raises AssignmentError if the problem is infeasible, or if no
    solution was found.
    """
    clock = Clock(meter.read(), budget_s, meter)
    if not budget_s > 0:
        raise AssignmentError(f"budget of {budget_s} s: give a positive one")
    from meshwright.search.assignment.phases import run  # numba takes a while to load

    incumbent, messages = run(problem, clock, options, seed, on_progress)
    choices = incumbent.lifted()
    cost = math.inf if choices is None else problem.cost(choices)
    if options.start is not None:
        start = np.asarray(options.start, np.int64)
        if problem.is_feasible(start) and problem.cost(start) < cost:
            choices, cost = start, problem.cost(start)
    if choices is None and incumbent.bound == math.inf:
        raise AssignmentError(
            "no solution: no allowed combination of choices fits into the usage limit"
        )
    if choices is None:
        raise AssignmentError(
            f"no feasible solution found within {clock.elapsed_s:.1f} s: "
            "give more time, or a higher usage limit"
        )
    assert problem.is_feasible(choices), "presolve has changed the problem"
    first_s = incumbent.first_s if incumbent.first_s is not None else clock.elapsed_s
    bound, seconds = min(incumbent.bound, cost), clock.elapsed_s
    return Solution(choices, cost, bound, seconds, first_s, messages)

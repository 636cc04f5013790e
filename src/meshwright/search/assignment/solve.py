"""The one entry: a problem and a budget in, choices with their cost and a bound out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.assignment.problem import Assignment, Floats, Ints


@dataclass(frozen=True, slots=True)
class Clock:
    """When a solve started, on `time.perf_counter`, and how long it may take."""

    start_s: float
    budget_s: float

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self.start_s

    @property
    def left_s(self) -> float:
        return self.budget_s - self.elapsed_s


@dataclass(frozen=True, slots=True, eq=False)
class Aim:
    """What ends a solve before its time, and what it begins with.

    gap: part of the cost by which it may be above the bound. worthless: a bound from
    which on nobody wants the rest. start: choices; if they are feasible, what comes out
    costs no more. turns: of search and bound, on one thread; with them a solve that has
    the time comes out the same each time. told: by the solution of a problem that only
    costs differently, to begin with; any are valid.
    """

    gap: float = 0.0
    worthless: float = math.inf
    start: Sequence[int] | Ints | None = None
    turns: int | None = None
    told: Floats | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a solve is: cost and bound are infinite while nothing is known."""

    cost: float
    bound: float
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Choices, what they cost, and what every solution costs at least.

    seconds: that it took; first_s: until the first feasible solution was there; told:
    messages of the nodes, see `Aim`
    """

    choices: Ints
    cost: float
    bound: float
    seconds: float
    first_s: float
    told: Floats | None = None

    @property
    def gap(self) -> float:
        """How far the cost may be above the optimum, as a part of the cost."""
        if self.cost <= self.bound:
            return 0.0
        return (self.cost - self.bound) / max(abs(self.cost), 1e-300)

    @property
    def is_optimal(self) -> bool:
        """Whether it is proven that nothing costs less."""
        return self.gap <= 1e-9

    def __str__(self) -> str:
        return (
            f"cost {self.cost:.12g}, bound {self.bound:.12g}, gap {self.gap:.4%}, "
            f"{self.seconds:.1f} s"
        )


def solve(
    problem: Assignment,
    budget_s: float,
    seed: int = 0,
    *,
    aim: Aim = Aim(),
    on_progress: Callable[[Progress], None] | None = None,
) -> Solution:
    """The best choices found within a budget; after an interrupt (Ctrl-C), so far.

    Ends early once the cost is proven to be least, or as good as is aimed at.
    Small problems end the same way each time; with large ones, what two threads find by
    the deadline depends on the clock.
    Raises AssignmentError if nothing can be feasible, or if nothing was found.
    """
    clock = Clock(time.perf_counter(), budget_s)
    if not budget_s > 0:
        raise AssignmentError(f"budget of {budget_s} s: give a positive one")
    from meshwright.search.assignment.engine import run  # numba takes a while to load

    found, told = run(problem, clock, aim, seed, on_progress)
    choices = found.lifted()
    cost = math.inf if choices is None else problem.cost(choices)
    if aim.start is not None:
        start = np.asarray(aim.start, np.int64)
        if problem.is_feasible(start) and problem.cost(start) < cost:
            choices, cost = start, problem.cost(start)
    if choices is None and found.bound == math.inf:
        raise AssignmentError("no solution: nothing allowed fits into the usage limit")
    if choices is None:
        raise AssignmentError(
            f"no feasible solution found within {clock.elapsed_s:.1f} s: "
            "give more time, or a higher usage limit"
        )
    assert problem.is_feasible(choices), "presolve has changed the problem"
    first_s = found.first_s if found.first_s is not None else clock.elapsed_s
    bound, seconds = min(found.bound, cost), clock.elapsed_s
    return Solution(choices, cost, bound, seconds, first_s, told)

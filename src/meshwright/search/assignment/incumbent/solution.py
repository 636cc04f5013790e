"""Inputs and results of a solve: its clock, options, progress reports and solution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.search.arrays import Floats, Ints
from meshwright.search.work import REAL_TIME, Meter, Work


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a solve: a meter, its reading at the start, and the time budget.

    All are in seconds, real or of counted work.
    """

    start_s: float
    budget_s: float
    meter: Meter = REAL_TIME

    @property
    def elapsed_s(self) -> float:
        return self.meter.read() - self.start_s

    @property
    def left_s(self) -> float:
        return self.budget_s - self.elapsed_s

    def count(self, work: Work, units: float = 1.0) -> None:
        """Record operations of a kind of work on the meter."""
        self.meter.count(work, units)


@dataclass(frozen=True, slots=True, eq=False)
class SolveOptions:
    """Conditions that end a solve before its budget, and values to start from.

    gap: relative optimality gap at which the solve ends.
    stop_bound: lower bound at which the solve ends, however good the best solution is
        (Gurobi's BestBdStop).
    start: choices to start from (a warm start); if they are feasible, the result costs
        no more than they do.
    rounds: largest number of rounds of each search phase. With a limit the solve runs
        on one thread; with a meter of counted work its result is then the same on each
        run.
    messages: dual messages to start from, taken from the solution of a problem that
        differs only in its costs; any values are valid (see `Messages`).
    """

    gap: float = 0.0
    stop_bound: float = math.inf
    start: Sequence[int] | Ints | None = None
    rounds: int | None = None
    messages: Floats | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The best cost and the lower bound so far in a solve.

    Without a solution the cost is infinite; without a bound it is minus infinity.
    seconds: time since the start of the solve.
    """

    cost: float
    bound: float
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The result of a solve: choices with their cost, and a bound.

    choices: one choice per node.
    bound: lower bound on the cost of every solution.
    seconds: duration of the solve.
    first_s: seconds until the first feasible solution.
    messages: final dual messages, to be passed as `SolveOptions.messages` to a problem
        that differs only in its costs.
    """

    choices: Ints
    cost: float
    bound: float
    seconds: float
    first_s: float
    messages: Floats | None = None

    @property
    def gap(self) -> float:
        """Relative optimality gap: the cost is above the optimum by at most this share."""
        if self.cost <= self.bound:
            return 0.0
        return (self.cost - self.bound) / max(abs(self.cost), 1e-300)

    @property
    def is_optimal(self) -> bool:
        """Whether the bound proves that no solution costs less."""
        return self.gap <= 1e-9

    def __str__(self) -> str:
        return (
            f"cost {self.cost:.12g}, bound {self.bound:.12g}, gap {self.gap:.4%}, "
            f"{self.seconds:.1f} s"
        )

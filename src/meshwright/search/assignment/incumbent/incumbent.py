"""The best solution and lower bound so far, which the threads of a solve share."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meshwright.search.arrays import Floats, Ints
from meshwright.search.assignment.incumbent.solution import (
    Clock,
    Progress,
    SolveOptions,
)
from meshwright.search.assignment.problem.memory_rows import MemoryRows
from meshwright.search.assignment.problem.reduced_problem import ReducedProblem

ROUNDING = 1e-9  # relative difference of costs that counts as equal


@dataclass(eq=False)
class Incumbent:
    """The best choices found so far for a reduced problem, and a lower bound.

    All parts of a solve offer their solutions and bounds to it.
    stopped: whether a thread or Ctrl-C has asked the search to end.
    stops: functions that stop external solvers; called at the end of the search.
    start: choices from which the primal search starts; they may exceed the memory
        limit.
    """

    reduced: ReducedProblem
    memory: MemoryRows
    clock: Clock
    options: SolveOptions
    on_progress: Callable[[Progress], None] | None

    def __post_init__(self) -> None:
        reduced = self.reduced
        self.choices: Ints | None = None
        self.cost = math.inf
        self.bound = -math.inf
        self.first_s: float | None = None
        self._is_whole = _are_whole(reduced.costs) and _are_whole(reduced.graph.tables)
        self._lock = threading.Lock()
        self.stopped = False
        self.stops: list[Callable[[], None]] = []
        self.start: Ints | None = None
        self._unrestricted: Incumbent | None = None

    def begin_from(self, original: Ints) -> None:
        """Start from given choices of the original nodes.

        The nearest choices of the reduced nodes are offered, and become `start`.
        """
        self.start = self.reduced.nearest(original)
        self.offer(self.start)

    def restricted(self, reduced: ReducedProblem, memory: MemoryRows) -> Incumbent:
        """The incumbent of the same search on a smaller problem with fewer choices.

        Every solution better than the best one so far must remain. If the best solution
        itself does not, its cost remains the one to beat.
        """
        new = Incumbent(reduced, memory, self.clock, self.options, self.on_progress)
        new._unrestricted, new.bound, new.first_s = self, self.bound, self.first_s
        best = self.lifted()
        if best is not None:
            new.begin_from(best)
        if new.cost > self.cost:
            new.cost, new.choices = self.cost, None
        return new

    def lifted(self) -> Ints | None:
        """The best choices of the original nodes; `None` before the first solution."""
        if self.choices is not None:
            return self.reduced.lift(self.choices)
        before = self._unrestricted
        return None if before is None else before.lifted()

    def offer(self, choices: Ints) -> bool:
        """Keep these choices if they fit into memory and cost less than the best ones.

        Returns whether they were kept.
        """
        cost = self.reduced.cost(choices)
        if cost >= self.cost or self.memory.left(choices).min(initial=0.0) < 0:
            return False
        with self._lock:
            if cost >= self.cost:
                return False
            self.choices, self.cost = choices.copy(), cost
            if self.first_s is None:
                self.first_s = self.clock.elapsed_s
            self._report()
        return True

    def raise_bound(self, bound: float) -> None:
        """Keep this lower bound if it is higher than the present one.

        If all costs are integers, it is rounded up.
        """
        if self._is_whole and math.isfinite(bound):
            bound = float(math.ceil(bound - 1e-6 - ROUNDING * abs(bound)))
        with self._lock:
            better = bound > self.bound
            self.bound = max(self.bound, bound)
            if better:
                self._report()

    def priced(self, row_prices: Floats) -> Floats:
        """Costs of all choices, plus the price of the memory that each takes.

        row_prices: price of memory at each memory row.
        """
        if not self.memory.num_rows:
            return self.reduced.costs
        starts = self.reduced.graph.starts
        return self.reduced.costs + self.memory.prices(starts, row_prices)

    @property
    def is_proven(self) -> bool:
        """Whether the bound proves the cost to be within the allowed optimality gap."""
        gap = self.cost - self.bound
        allowed = max(self.options.gap, ROUNDING)
        return self.cost < math.inf and gap <= allowed * abs(self.cost)

    @property
    def is_over(self) -> bool:
        """Whether the search has to end: proven, stopped, or out of time.

        It also ends once the lower bound reaches `SolveOptions.stop_bound`.
        """
        is_useless = self.is_proven or self.bound >= self.options.stop_bound
        return self.stopped or is_useless or self.clock.left_s <= 0

    def _report(self) -> None:
        """Call the progress function.

        The caller holds the lock, so that threads report in order.
        """
        if self.on_progress is not None:
            self.on_progress(Progress(self.cost, self.bound, self.clock.elapsed_s))


def _are_whole(numbers: Floats) -> bool:
    finite = numbers[numbers < np.inf]
    return bool(np.all(finite == np.round(finite)) and np.abs(finite).sum() < 2**53)

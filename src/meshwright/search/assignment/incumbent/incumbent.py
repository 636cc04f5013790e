"""The best solution so far and the best bound, shared by all who search for either."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np

from meshwright.search.arrays import Floats, Ints
from meshwright.search.assignment.incumbent.solution import (
    Clock,
    Progress,
    SolveOptions,
)
from meshwright.search.assignment.problem.memory_rows import MemoryRows
from meshwright.search.assignment.problem.reduced_problem import ReducedProblem

ROUNDING = 1e-9  # part of the cost that counts as none


class Incumbent:
    """Keeps the best choices of a kernel, and knows when to stop."""

    def __init__(
        self,
        reduced: ReducedProblem,
        memory: MemoryRows,
        clock: Clock,
        options: SolveOptions,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.reduced = reduced
        self.memory = memory
        self.clock = clock
        self.options = options
        self.choices: Ints | None = None
        self.cost = math.inf
        self.bound = -math.inf
        self.first_s: float | None = None
        self._is_whole = _are_whole(reduced.costs) and _are_whole(reduced.tables)
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self.stopped = False
        self.stops: list[Callable[[], None]] = []  # what else to call then
        self.start: Ints | None = None  # where to climb from; it may not fit
        self._before: Incumbent | None = None

    def begin_from(self, original: Ints) -> None:
        """Take choices of the original nodes, as near to them as the kernel has any."""
        self.start = self.reduced.nearest(original)
        self.offer(self.start)

    def narrowed(self, reduced: ReducedProblem, memory: MemoryRows) -> Incumbent:
        """The same search where only what may be better than the best so far is left.

        The kernel may have lost the best itself, to something as good; its cost stays.
        """
        pool = Incumbent(reduced, memory, self.clock, self.options, self._on_progress)
        pool._before, pool.bound, pool.first_s = self, self.bound, self.first_s
        best = self.lifted()
        if best is not None:
            pool.begin_from(best)
        if pool.cost > self.cost:
            pool.cost, pool.choices = self.cost, None
        return pool

    def lifted(self) -> Ints | None:
        """The best choices of the original nodes, if there are any."""
        if self.choices is not None:
            return self.reduced.lift(self.choices)
        return None if self._before is None else self._before.lifted()

    def offer(self, choices: Ints) -> bool:
        """Take the choices if they fit and cost less than the best so far."""
        cost = self.reduced.cost(choices)
        if cost >= self.cost or self.memory.left(choices).min(initial=0.0) < 0:
            return False
        with self._lock:
            if cost >= self.cost:
                return False
            self.choices, self.cost = choices.copy(), cost
            if self.first_s is None:
                self.first_s = self.clock.elapsed_s
        self._tell()
        return True

    def raise_bound(self, bound: float) -> None:
        """Take a lower bound; of whole costs, the next whole number."""
        if self._is_whole and bound < math.inf:
            bound = float(math.ceil(bound - 1e-6 - ROUNDING * abs(bound)))
        with self._lock:
            better = bound > self.bound
            self.bound = max(self.bound, bound)
        if better:
            self._tell()

    @property
    def is_proven(self) -> bool:
        """Whether nothing better can exist, or only by the gap that is allowed."""
        gap = self.cost - self.bound
        allowed = max(self.options.gap, ROUNDING)
        return self.cost < math.inf and gap <= allowed * abs(self.cost)

    @property
    def is_over(self) -> bool:
        """Whether searching on is useless, or time is up, or somebody said stop."""
        is_useless = self.is_proven or self.bound >= self.options.stop_bound
        return self.stopped or is_useless or self.clock.left_s <= 0

    def has_ended(self) -> bool:
        """The same, to be called by what takes long."""
        return self.is_over

    def _tell(self) -> None:
        if self._on_progress is not None:
            told = Progress(self.cost, self.bound, self.clock.elapsed_s)
            self._on_progress(told)


def _are_whole(numbers: Floats) -> bool:
    finite = numbers[numbers < np.inf]
    return bool(np.all(finite == np.round(finite)) and np.abs(finite).sum() < 2**53)

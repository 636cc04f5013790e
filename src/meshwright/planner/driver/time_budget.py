"""The time of a search, measured in simulations, its largest indivisible work."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_FINAL_PLAN = 0.9
"""Time to build the returned plan at the end, in simulations."""


@dataclass
class TimeBudget:
    """A clock, and its reading at which the search has to return its best plan.

    until, clock: seconds. simulation_s: the longest simulation so far.
    """

    until: float
    clock: Callable[[], float] = time.monotonic
    simulation_s: float = 0.0

    def left_s(self, simulations: float) -> float:
        """Seconds left after so many simulations and the building of the final plan."""
        needed = (simulations + _FINAL_PLAN) * self.simulation_s
        return self.until - self.clock() - needed

    def left_without_plan_s(self) -> float:
        """Seconds left if no final plan is built, since nothing fits yet."""
        return self.left_s(-_FINAL_PLAN)

    def has_time(self, simulations: float) -> bool:
        """Whether time is left for so many simulations and the final plan."""
        return self.left_s(simulations) > 0

    def note_simulation(self, began: float) -> None:
        """Count a simulation that began at this reading of the clock and ends now."""
        self.simulation_s = max(self.simulation_s, self.clock() - began)

"""The task of one search: a program, the meshes to try, and the limits.

Time is measured in simulations, the largest indivisible work of a search.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshwright.machine import Mesh
from meshwright.planner.candidates.proposal import OnProgress, ValueOf
from meshwright.planner.solve.space import Space

_FINAL_PLAN = 0.9
"""Time to build the returned plan at the end, in simulations."""


def ignore_progress(text: str) -> None:
    """A progress function that does nothing."""


@dataclass(frozen=True, slots=True)
class SearchTask:
    """One program, the meshes to try, and the objective.

    limit: bytes of a device. value_of: the objective; smaller is better.
    memory_share: share of the limit that the plans of integer programs may take.
    with_experts: whether plans of expert strategies are tried, too.
    """

    space: Space
    meshes: Sequence[Mesh]
    limit: float
    value_of: ValueOf
    on_progress: OnProgress = ignore_progress
    memory_share: float = 1.0
    with_experts: bool = True


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

    def has_time(self, simulations: float) -> bool:
        """Whether time is left for so many simulations and the final plan."""
        return self.left_s(simulations) > 0

"""The task of one search for a plan: a program, the meshes to try, and the limits.

Time is counted work (`search.work`). Several limits are multiples of the time of one
simulation, the largest indivisible work of a search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from meshwright.machine import Mesh
from meshwright.planner.candidates.proposal import OnProgress, ValueOf
from meshwright.planner.candidates.stored_weights import StoredWeights
from meshwright.planner.solve.space import Space
from meshwright.predict.compilers.targets import compiler_of
from meshwright.search.work import Work, WorkMeter

_FINAL_PLAN = 0.9
"""Time to build the returned plan at the end, as a multiple of a simulation's time."""


def ignore_progress(text: str) -> None:
    """Ignore a line of progress: the default of `on_progress`."""


@dataclass(frozen=True, slots=True)
class SearchTask:
    """The task of a search: one program, the meshes to try, and the objective.

    space: program, machine and user's tactics.
    limit: bytes of each device's memory that a plan may use.
    value_of: objective as a function of seconds and bytes; smaller is better.
    memory_share: share of the limit that plans of integer programs may use.
    with_experts: whether expert strategies are tried, too.
    stored_weights: weights that every plan has to shard as another plan does, if any.
    donate_state: whether each input whose next value the step returns is donated.
    """

    space: Space
    meshes: Sequence[Mesh]
    limit: float
    value_of: ValueOf
    on_progress: OnProgress = ignore_progress
    memory_share: float = 1.0
    with_experts: bool = True
    stored_weights: StoredWeights | None = None
    donate_state: bool = True

    @property
    def most_bytes(self) -> float:
        """Predicted bytes per device above which no plan can fit.

        This limit includes the on-chip memory, since the prediction also counts buffers
        that a compiler may place there.
        """
        machine = self.space.machine
        on_chip = compiler_of(machine).assigns_memory_spaces * machine.chip.room_bytes
        return self.limit + on_chip


@dataclass
class TimeBudget:
    """A meter of counted work, and its reading at which a search must end.

    until: reading in seconds at which the search returns its best plan.
    simulation_s: seconds of the longest simulation so far.
    """

    until: float
    meter: WorkMeter
    simulation_s: float = 0.0

    @classmethod
    def of(cls, seconds: float) -> Self:
        """A budget of `seconds` of counted work, with a safety net in real time."""
        return cls(seconds, WorkMeter.for_budget(seconds))

    def clock(self) -> float:
        """The reading of the meter: seconds of counted work so far."""
        return self.meter.read()

    def count(self, work: Work, units: float = 1.0) -> None:
        """Record on the meter that `units` operations of a kind were done."""
        self.meter.count(work, units)

    def left_s(self, simulations: float) -> float:
        """Seconds left after so many simulations and the building of the final plan."""
        needed = (simulations + _FINAL_PLAN) * self.simulation_s
        return self.until - self.clock() - needed

    def has_time(self, simulations: float) -> bool:
        """Whether time is left for so many simulations and the final plan."""
        return self.left_s(simulations) > 0

"""The task of planning a pipeline: the train step, the machine, and options to try."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshwright.errors import MachineError
from meshwright.features.pipeline.planning.stage_mesh import submachine
from meshwright.features.pipeline.schedules.generators import require_schedule
from meshwright.machine import Machine
from meshwright.planner.candidates.proposal import OnProgress
from meshwright.planner.driver.task import ignore_progress
from meshwright.program.capture import Captured

MOST_STAGES = 32
"""Largest number of stages of a pipeline."""


@dataclass(frozen=True, slots=True)
class PipelineTask:
    """A train step to be planned as a pipeline on a machine.

    capture_fn: function that captures the step with a batch of a given size.
    batch: size of the whole batch.
    machine: machine whose devices are all used.
    limit_bytes: bytes of each device's memory that a plan may use.
    microbatches: numbers of microbatches to try; by default about a dozen divisors of
        the batch.
    sizes: numbers of devices of a submesh to try; by default the powers of two that
        form a grid.
    most_stages: largest number of stages; 1 for no pipeline.
    schedule: name of the only schedule to try; "" for all, and for searched ones.
    """

    name: str
    capture_fn: Callable[[int], Captured]
    batch: int
    machine: Machine
    limit_bytes: float
    microbatches: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    most_stages: int = MOST_STAGES
    schedule: str = ""
    on_progress: OnProgress = ignore_progress

    def __post_init__(self) -> None:
        if self.schedule:
            require_schedule(self.schedule)


def submesh_sizes(machine: Machine) -> tuple[int, ...]:
    """Numbers of devices of the submeshes to try: powers of two that form a grid."""
    found: list[int] = []
    size = 1
    while size <= machine.num_devices:
        try:
            submachine(machine, size)
            found.append(size)
        except MachineError:
            pass
        size *= 2
    return tuple(found)


_MOST_MICROBATCHES = 1024
"""Largest number of microbatches to try, since simulating a schedule takes as long."""


def microbatch_counts(batch: int) -> tuple[int, ...]:
    """Numbers of microbatches to try: divisors of the batch, at most 1,024.

    Each is at least twice the one before.
    """
    most = min(batch, _MOST_MICROBATCHES)
    divisors = [n for n in range(1, most + 1) if batch % n == 0]
    found = [divisors[0]]
    for each in divisors[1:]:
        if each >= 2 * found[-1]:
            found.append(each)
    return tuple(found)


def near_divisors(batch: int, count: int) -> tuple[int, ...]:
    """The divisors of a batch between half and double a number of microbatches."""
    near = range(count // 2 + 1, 2 * count)
    return tuple(n for n in near if batch % n == 0 and n != count)

"""The task of planning a pipeline: the train step, the machine, and options to try."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from meshwright.errors import MachineError
from meshwright.features.pipeline.planning.stage_mesh import submachine
from meshwright.features.pipeline.schedules.generators import require_schedule
from meshwright.machine import Machine
from meshwright.planner.candidates.proposal import OnProgress
from meshwright.planner.driver.task import ignore_progress
from meshwright.program.capture import Captured
from meshwright.search.work import Work, WorkMeter

PRICE = Work("price a strategy", 1.0e-4)
"""Work to capture, partition and simulate a step under a strategy, per node."""

SCHEDULE = Work("simulate a schedule", 1.0e-5)
"""Work to make and simulate a schedule, per task."""

BUILD = Work("build stages", 5.0e-4)
"""Work to build and simulate the stages of a step, per op."""

MOST_STAGES = 32
"""Largest number of stages of a pipeline."""


@dataclass(frozen=True, slots=True)
class PipelineTask:
    """A train step to be planned as a pipeline on a machine.

    capture_fn: function that captures the step with a batch of a given size.
    batch: size of the whole batch.
    machine: machine whose devices are all used.
    limit_bytes: bytes of each device's memory that a plan may use.
    microbatches: numbers of microbatches to try; by default divisors of the
        batch (`microbatch_counts`).
    sizes: numbers of devices of a submesh to try; by default the powers of two that
        form a grid.
    most_stages: largest number of stages; 1 for no pipeline.
    schedule: name of the only schedule to try; "" for all, and for searched ones.
    meter: meter of the planning's work, whose end it keeps to; by default there is none.
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
    meter: WorkMeter = field(default_factory=WorkMeter)

    def is_over(self, share: float = 1.0) -> bool:
        """Whether a share of the time for planning is over."""
        return self.meter.read() >= share * self.meter.end_s

    def __post_init__(self) -> None:
        if self.schedule:
            require_schedule(self.schedule)


def submesh_sizes(machine: Machine) -> tuple[int, ...]:
    """Numbers of devices of the submeshes to try: powers of two that form a grid.

    The smallest one takes about half of an equal share of `MOST_STAGES` stages, so that
    there are as many sizes on any number of devices: a stage with fewer devices has less
    work than half a layer.
    """
    num_devices, size = machine.num_devices, 1
    while num_devices % (2 * size) == 0 and 4 * MOST_STAGES * size <= num_devices:
        size *= 2
    found: list[int] = []
    while size <= num_devices:
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

    They are powers of two, and these times the batch's odd part: then microbatches have
    as many factors of two as the batch, and can be cut as finely.
    """
    odd = batch // (batch & -batch)
    doubled = [1 << k for k in range(_MOST_MICROBATCHES.bit_length())]
    counts = {*doubled, *(odd * power for power in doubled)}
    most = min(batch, _MOST_MICROBATCHES)
    return tuple(n for n in sorted(counts) if n <= most and batch % n == 0)


def near_divisors(batch: int, count: int) -> tuple[int, ...]:
    """The divisors of a batch between half and double a number of microbatches."""
    near = range(count // 2 + 1, 2 * count)
    return tuple(n for n in near if batch % n == 0 and n != count)

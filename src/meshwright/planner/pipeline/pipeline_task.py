"""The task of planning a pipeline: the step, the machine, and the choices to try."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshwright.errors import MachineError
from meshwright.machine import Machine
from meshwright.planner.candidates.proposal import OnProgress
from meshwright.planner.driver.task import ignore_progress
from meshwright.planner.pipeline.stage_mesh import IntraStrategy, submachine
from meshwright.program.capture import Captured

MOST_STAGES = 32
"""Most stages of a pipeline."""


@dataclass(frozen=True, slots=True)
class PipelineTask:
    """One train step to be planned.

    capture_fn: the step captured with a batch of a given size.
    batch: size of the whole batch. machine: all devices.
    limit_bytes: of each device's memory.
    microbatches: numbers to try; by default about a dozen divisors of the batch.
    sizes: devices of a submesh; by default the powers of two that have a grid.
    strategies: by default those of `intra_strategies`.
    most_stages: 1 for no pipeline.
    """

    name: str
    capture_fn: Callable[[int], Captured]
    batch: int
    machine: Machine
    limit_bytes: float
    microbatches: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    strategies: tuple[IntraStrategy, ...] = ()
    most_stages: int = MOST_STAGES
    on_progress: OnProgress = ignore_progress


def submesh_sizes(machine: Machine) -> tuple[int, ...]:
    """Devices of the submeshes to try: powers of two that have a grid."""
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


def microbatch_counts(batch: int) -> tuple[int, ...]:
    """Numbers of microbatches to try: divisors of the batch, about powers of two apart."""
    divisors = [n for n in range(1, batch + 1) if batch % n == 0]
    found = [divisors[0]]
    for each in divisors[1:]:
        if each >= 2 * found[-1]:
            found.append(each)
    return tuple(found)

"""A step divided into stages, each partitioned on its submesh, and the stages' programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.features.pipeline.stages.layer_weights import OpenedStep
from meshwright.features.pipeline.stages.lowered_step import LoweredStep, read_lowered
from meshwright.features.pipeline.stages.staged import Staged
from meshwright.features.pipeline.stages.tasks import StageTasks, stage_tasks
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided
from meshwright.program.capture import Captured


@dataclass(frozen=True, eq=False)
class StagedStep:
    """A step divided into stages, each with the sharding decisions for its submesh.

    source: the whole step, as it was captured. opened: with layers that can be divided.
    staged: the step of one microbatch; each op has its stage and pass.
    captured: the same program in the form that tactics take.
    decided: for each stage, the decisions about the step on the stage's submesh.
    """

    source: Captured
    opened: OpenedStep
    staged: Staged
    captured: Captured
    schedule: Schedule
    decided: tuple[Decided, ...]
    submeshes: tuple[Mesh, ...]


def stage_programs(step: StagedStep) -> Sequence[tuple[LoweredStep, StageTasks]]:
    """A pair for each stage: the device program of the whole step, and the stage's tasks.

    The device program is one microbatch's step, lowered for the stage's submesh; the tasks
    are parts of it.
    """
    read: dict[Decided, LoweredStep] = {}
    found: list[tuple[LoweredStep, StageTasks]] = []
    for number, decided in enumerate(step.decided):
        if decided not in read:
            read[decided] = read_lowered(step.staged, decided.lowered)
        found.append((read[decided], stage_tasks(read[decided], number)))
    return found

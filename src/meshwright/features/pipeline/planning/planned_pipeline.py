"""The result of planning a pipeline: stages on submeshes, and a schedule."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.features.pipeline.planning.pipeline_stage import (
    PipelineStage,
    run_stages,
)
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.features.pipeline.schedules.simulate import Simulation


@dataclass(frozen=True, slots=True)
class PipelineFigures:
    """Predicted times of a planned step on a machine.

    step_time_s: seconds for all microbatches and for the work that runs once before and
        after them, such as the weight update.
    bubble_fraction: share of the time of all microbatches in which submeshes are idle.
    """

    machine: str
    step_time_s: float
    bubble_fraction: float


@dataclass(frozen=True, slots=True)
class PlannedPipeline:
    """The stages and the schedule that the planner has chosen, with prices of its tables.

    A `PipelinePlan` is made of it, whose programs are built and simulated.
    name: name of the step's function.
    schedule_name: the name of a published schedule, or "searched".
    limit_bytes: bytes of each device's memory that the plan may use.
    tried: step seconds of other schedules of these stages, or why they were refused.
    seconds: duration of the planning.
    """

    name: str
    stages: tuple[PipelineStage, ...]
    schedule: Schedule
    figures: PipelineFigures
    schedule_name: str
    limit_bytes: float
    tried: tuple[tuple[str, float | str], ...] = ()
    seconds: float = 0.0

    @property
    def num_microbatches(self) -> int:
        """Number of microbatches into which the batch of a step is divided."""
        return self.schedule.num_microbatches

    @property
    def step_time_s(self) -> float:
        """Predicted seconds of a training step, with the work that is done once."""
        return self.figures.step_time_s

    def simulate(self) -> Simulation:
        """Simulate when each task of the schedule runs on its submesh."""
        return run_stages(self.stages, self.schedule)

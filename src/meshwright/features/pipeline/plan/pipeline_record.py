"""`PipelineRecord`: the data of the plan of a pipeline, which views and figures read."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshwright.app.record.step_record import StepRecord
from meshwright.errors import PlanError
from meshwright.features.pipeline.plan.simulated_step import SimulatedStep
from meshwright.features.pipeline.planning.pipeline_stage import (
    PipelineStage,
    run_stages,
)
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.features.pipeline.schedules.simulate import Simulation, peak_bytes
from meshwright.features.pipeline.stages.marks import StagePoint
from meshwright.features.pipeline.stages.staged_step import StagedStep
from meshwright.machine import Machine


@dataclass(frozen=True)
class PipelineRecord(StepRecord):
    """The stages of a pipeline in order, and a schedule of their tasks.

    A task is one pass of one stage over one microbatch.
    starts: where stages but the first begin, or their number, as `mw.pipeline` takes it.
    batch, statistics: the options of these names of `mw.pipeline`.
    schedule_name: the name of a published schedule, or "" for another one.
    limit_bytes: bytes of each device's memory that the plan may use; `None` for all.
    bubble_fraction: share of the time of all microbatches in which submeshes are idle.
    notes: sentences that a reader of the plan must know.
    recorded_parameters: the value of `num_parameters`.
    step: the programs of the stages; `None` for a plan that was read from JSON.
    simulated: the simulated tasks behind `figures`; `None` without figures or programs.
    """

    stages: tuple[PipelineStage, ...]
    schedule: Schedule
    starts: int | tuple[int | StagePoint, ...] | None = None
    batch: tuple[str, ...] = ()
    statistics: str = "whole"
    schedule_name: str = ""
    limit_bytes: float | None = None
    bubble_fraction: float = 0.0
    notes: tuple[str, ...] = ()
    recorded_parameters: int = 0
    step: StagedStep | None = field(default=None, compare=False, repr=False)
    simulated: SimulatedStep | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.schedule.num_stages != len(self.stages):
            raise PlanError(
                f"a schedule of {self.schedule.num_stages} stages for a plan of"
                f" {len(self.stages)}"
            )

    @property
    def num_microbatches(self) -> int:
        """Number of microbatches into which the batch of a step is divided."""
        return self.schedule.num_microbatches

    @property
    def num_devices(self) -> int:
        """Number of devices of all submeshes."""
        return sum({s.submesh: s.mesh.num_devices for s in self.stages}.values())

    @property
    def num_parameters(self) -> int:
        """Number of elements of all parameters, unsharded; 0 for no parameters."""
        return self.recorded_parameters

    @property
    def layout(self) -> str:
        """The stages and submeshes as text, such as `4 stages of data=2,model=4`."""
        meshes = {s.submesh: str(s.mesh) for s in self.stages}
        count = f"{len(self.stages)} stage{'s' * (len(self.stages) > 1)}"
        if len(meshes) < len(self.stages):
            count += f" on {len(meshes)} submeshes"
        return f"{count} of {' and '.join(dict.fromkeys(meshes.values()))}"

    @property
    def machine(self) -> Machine:
        """The machine of the figures; `PlanError` if the plan was not simulated here."""
        return self.simulated_step.machine

    @property
    def simulated_step(self) -> SimulatedStep:
        """The simulated tasks; `PlanError` if the plan was not simulated here."""
        if self.simulated is None:
            raise PlanError(
                "a plan read from JSON has no simulated tasks; make it again from the "
                "program, and name the machine"
                if self.figures is not None
                else 'this plan names no machine; plan.on("h100") gives one that does'
            )
        return self.simulated

    # -- figures ------------------------------------------------------------------------

    @property
    def peak_bytes(self) -> tuple[float, ...]:
        """Peak bytes on one device of each submesh, under the schedule.

        Without a machine fusion is ignored, so that a compiled step needs less.
        """
        passes = peak_bytes(self.schedule, [stage.bytes for stage in self.stages])
        once = [0.0] * len(passes)
        for stage in self.stages:
            once[stage.submesh] += stage.bytes.state + stage.once_bytes
        return tuple(map(max, passes, once))

    def require_memory(self, limit_bytes: float) -> None:
        """Raise `ScheduleError` if a device would need more than `limit_bytes`.

        The message names the stage and the microbatch.
        """
        peak_bytes(self.schedule, [stage.bytes for stage in self.stages], limit_bytes)

    def simulate(self) -> Simulation:
        """Simulate when each task of the schedule runs on its submesh."""
        return run_stages(self.stages, self.schedule)

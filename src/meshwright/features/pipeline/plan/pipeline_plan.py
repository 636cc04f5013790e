"""The plan of a pipeline: stages on submeshes, a schedule, and figures of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.app.output.files import read_plan_file
from meshwright.app.planned_step import PlannedStep
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
from meshwright.predict.energy import Location, find_location

if TYPE_CHECKING:
    from meshwright.features.pipeline.plan.confirmation import PipelineConfirmation


@dataclass(frozen=True)
class PipelinePlan(PlannedStep):
    """The plan of a pipeline: its stages in order, and a schedule of their tasks.

    A task is one pass of one stage over one microbatch. `autoplan` with `pipeline=True`
    returns such a plan, and `mw.pipeline(...).plan(...)`. `mw.pipeline(fn, plan)` runs it.
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `PlanError`: a plan has no function; `mw.pipeline(fn, plan)` runs it."""
        raise PlanError(
            "a plan holds decisions and does not run; "
            f"step = mw.pipeline({self.name or 'fn'}, plan) is the function that runs it"
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

    def on(
        self,
        machine: Machine | str | Path,
        place: Location | str | None = None,
        donate_state: bool = False,
    ) -> PipelinePlan:
        """This plan with the time, memory, energy and cost of a step on a machine.

        machine: a machine with as many devices as all submeshes, or the name of a preset or
            of a TOML file, of which that many devices are taken.
        place, donate_state: as in `Plan.on`.
        Raises `MachineError` if machine and submeshes do not match, and `PlanError` for a
        plan that was read from JSON, which has no programs.
        """
        from meshwright.features.pipeline.plan.simulate_plan import simulate_plan

        if self.step is None:
            raise PlanError("a plan read from JSON has no programs to simulate")
        where = place if isinstance(place, Location | None) else find_location(place)
        return simulate_plan(self, self.step, machine, where, donate_state)

    def scheduled(self, schedule: Schedule, name: str = "") -> PipelinePlan:
        """This plan with another order of the same tasks, simulated again.

        name: of a published schedule.
        """
        from meshwright.features.pipeline.plan.simulate_plan import with_figures

        step = None if self.step is None else replace(self.step, schedule=schedule)
        return with_figures(
            replace(self, schedule=schedule, schedule_name=name, step=step)
        )

    def confirm(
        self,
        machine: Machine | str,
        *,
        full: bool = False,
        timeout_s: float = 600.0,
        folder: str | PathLike[str] | None = None,
        donate_state: bool = False,
    ) -> PipelineConfirmation:
        """Predicted figures of each stage's tasks next to those of the real compiler.

        The options and errors are those of `Plan.confirm`. Each task of each stage is
        compiled once, for the devices of its submesh.
        """
        from meshwright.features.pipeline.plan.confirmation import confirm_pipeline

        kept = None if folder is None else Path(folder)
        return confirm_pipeline(self, machine, donate_state, full, timeout_s, kept)

    # -- as text, HTML, trace events and JSON ----------------------------------------------

    @property
    def code(self) -> str:
        """Python code of a call of `mw.pipeline` that makes this pipeline again."""
        from meshwright.features.pipeline.plan.code import pipeline_code

        return pipeline_code(self)

    def describe(self, full: bool = False) -> str:
        """The plan as a page of text; `print(plan)` shows it.

        full: print the whole schedule, task by task.
        """
        from meshwright.features.pipeline.plan.text import pipeline_text

        return pipeline_text(self, full)

    def sections(self, tips: Any) -> Sequence[str]:
        """HTML sections: the schedule over time, the stages, and source lines."""
        from meshwright.features.pipeline.plan.sections import pipeline_sections

        return pipeline_sections(self, tips)

    def trace_events(self, first: int) -> list[dict[str, Any]]:
        """Trace events of the schedule, one process for each submesh from `first` on."""
        from meshwright.features.pipeline.plan.trace import pipeline_events

        return pipeline_events(self, first)

    def _repr_html_(self) -> str:
        from meshwright.features.pipeline.plan.sections import pipeline_html

        return pipeline_html(self)

    def to_json(self) -> str:
        """The plan as JSON text; tactics and the schedule are written as text."""
        from meshwright.features.pipeline.plan.json_form import pipeline_to_json

        return pipeline_to_json(self)

    @staticmethod
    def from_json(text: str) -> PipelinePlan:
        """The plan in a JSON text that `to_json` wrote; `PlanError` for other text."""
        from meshwright.features.pipeline.plan.json_form import pipeline_from_json

        return pipeline_from_json(text)

    @staticmethod
    def load(path: str | PathLike[str]) -> PipelinePlan:
        """The plan that `save` wrote; `mw.pipeline(fn, plan)` runs it on any host."""
        return PipelinePlan.from_json(read_plan_file(path))

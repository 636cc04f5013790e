"""The plan of a pipeline: stages on submeshes, a schedule, and figures of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from meshwright.app.confirm.confirmation import machine_to_place_on
from meshwright.app.output.files import read_plan_file
from meshwright.app.planned_step import PlannedStep
from meshwright.errors import PlanError
from meshwright.features.pipeline.plan.code import pipeline_code
from meshwright.features.pipeline.plan.confirmation import (
    PipelineConfirmation,
    confirm_tasks,
)
from meshwright.features.pipeline.plan.json_form import (
    pipeline_fields,
    pipeline_to_json,
)
from meshwright.features.pipeline.plan.pipeline_record import PipelineRecord
from meshwright.features.pipeline.plan.sections import (
    pipeline_html,
    pipeline_sections,
)
from meshwright.features.pipeline.plan.simulate_plan import simulate_plan, with_figures
from meshwright.features.pipeline.plan.text import pipeline_text
from meshwright.features.pipeline.plan.trace import pipeline_events
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.machine import Machine
from meshwright.predict.energy import Location, find_location


@dataclass(frozen=True)
class PipelinePlan(PipelineRecord, PlannedStep):
    """The plan of a pipeline: its stages in order, and a schedule of their tasks.

    `autoplan` with `pipeline=True` returns such a plan, and `mw.pipeline(...).plan(...)`.
    `mw.pipeline(fn, plan)` runs it. The fields are those of `PipelineRecord`.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `PlanError`: a plan has no function; `mw.pipeline(fn, plan)` runs it."""
        raise PlanError(
            "a plan holds decisions and does not run; "
            f"step = mw.pipeline({self.name or 'fn'}, plan) is the function that runs it"
        )

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
        if self.step is None:
            raise PlanError("a plan read from JSON has no programs to simulate")
        where = place if isinstance(place, Location | None) else find_location(place)
        return simulate_plan(self, self.step, machine, where, donate_state)

    def scheduled(self, schedule: Schedule, name: str = "") -> PipelinePlan:
        """This plan with another order of the same tasks, simulated again.

        name: of a published schedule.
        """
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
        if self.step is None:
            raise PlanError("a plan read from JSON has no program to compile")
        now = None if self.simulated is None else self.simulated.machine
        target = machine_to_place_on(machine, now, self.num_devices)
        placed = self if target is None else self.on(target, donate_state=donate_state)
        kept = None if folder is None else Path(folder)
        return confirm_tasks(placed, full, timeout_s, kept)

    # -- as text, HTML, trace events and JSON ----------------------------------------------

    @property
    def code(self) -> str:
        """Python code of a call of `mw.pipeline` that makes this pipeline again."""
        return pipeline_code(self)

    def describe(self, full: bool = False) -> str:
        """The plan as a page of text; `print(plan)` shows it.

        full: print the whole schedule, task by task.
        """
        return pipeline_text(self, full)

    def sections(self, tips: Any) -> Sequence[str]:
        """HTML sections: the schedule over time, the stages, and source lines."""
        return pipeline_sections(self, tips)

    def trace_events(self, first: int) -> list[dict[str, Any]]:
        """Trace events of the schedule, one process for each submesh from `first` on."""
        return pipeline_events(self, first)

    def _repr_html_(self) -> str:
        return pipeline_html(self)

    def to_json(self) -> str:
        """The plan as JSON text; tactics and the schedule are written as text."""
        return pipeline_to_json(self, self.candidate_rows)

    @staticmethod
    def from_json(text: str) -> PipelinePlan:
        """The plan in a JSON text that `to_json` wrote; `PlanError` for other text."""
        return PipelinePlan(**pipeline_fields(text))

    @staticmethod
    def load(path: str | PathLike[str]) -> PipelinePlan:
        """The plan that `save` wrote; `mw.pipeline(fn, plan)` runs it on any host."""
        return PipelinePlan.from_json(read_plan_file(path))

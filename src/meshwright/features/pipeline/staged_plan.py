"""The plan of a pipelined step: its stages, their submeshes and memory, the schedule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.app.output import notebook
from meshwright.app.output.numbers import show_count
from meshwright.app.output.table import Table
from meshwright.errors import PlanError
from meshwright.features.pipeline.schedules import Schedule, StageBytes, peak_bytes
from meshwright.features.pipeline.stage_plan import PipelineFigures, StagePlan
from meshwright.machine.memory_size import show_bytes
from meshwright.plain import Frame

if TYPE_CHECKING:
    from meshwright.features.pipeline.build import StagedStep

_WIDEST = 100
"""Most characters per line of a printed schedule; longer lines lose their middle."""


@dataclass(frozen=True, slots=True)
class StagedPlan:
    """A pipelined step: its stages in order, and the schedule of their tasks.

    A task is one pass of one stage over one microbatch.
    name: name of the function.
    figures: simulated times on a machine; `None` before `on` is called.
    step: the programs; `None` in a plan that was read from JSON.
    """

    name: str
    stages: tuple[StagePlan, ...]
    schedule: Schedule
    figures: PipelineFigures | None = None
    step: StagedStep | None = field(default=None, compare=False, repr=False)

    @property
    def num_microbatches(self) -> int:
        return self.schedule.num_microbatches

    @property
    def peak_memory_bytes(self) -> tuple[int, ...]:
        """Peak bytes on one device of each submesh, under the schedule.

        Fusion is ignored, so that a compiled step needs less.
        """
        sizes = self.stage_bytes
        return tuple(int(peak) for peak in peak_bytes(self.schedule, sizes))

    @property
    def stage_bytes(self) -> tuple[StageBytes, ...]:
        """Bytes of each stage on one device, in the form that schedule simulation takes."""
        return tuple(
            StageBytes(
                stage.state_bytes,
                stage.kept_bytes,
                min(stage.kept_for_weights_bytes, stage.kept_bytes),
                stage.working_bytes,
            )
            for stage in self.stages
        )

    def require_memory(self, limit_bytes: float) -> None:
        """Raise `ScheduleError` if a device would need more than `limit_bytes`.

        The message names the stage and the microbatch.
        """
        peak_bytes(self.schedule, self.stage_bytes, limit_bytes)

    def on(self, machine: str | Path) -> StagedPlan:
        """This plan with simulated times of a step on a machine.

        machine: the name of a preset, or a TOML file.
        Raises `PlanError` for a plan that was read from JSON, which has no programs.
        """
        if self.step is None:
            raise PlanError("a plan read from JSON has no programs to simulate")
        from meshwright.features.pipeline.simulated import simulate_step

        return replace(self, figures=simulate_step(self.stages, self.step, machine))

    def table(self) -> Table:
        """A table with one row for each stage: submesh, FLOPs and bytes."""
        titles = (
            "stage", "submesh", ">forward FLOP", ">backward FLOP", ">state",
            ">kept", ">sent", ">peak",
        )  # fmt: skip
        peaks = self.peak_memory_bytes
        rows = tuple(
            (
                stage.name,
                f"{stage.submesh}: {stage.mesh}",
                show_count(stage.forward_flops),
                show_count(stage.backward_flops),
                show_bytes(stage.state_bytes),
                show_bytes(stage.kept_bytes),
                show_bytes(stage.sent_bytes),
                show_bytes(peaks[stage.submesh]),
            )
            for stage in self.stages
        )
        return Table(titles, rows)

    @property
    def summary(self) -> str:
        """One line: the numbers of stages, submeshes and microbatches."""
        count = self.schedule.num_submeshes
        return (
            f"{self.name or 'step'}: {len(self.stages)} stages on {count} submeshes, "
            f"{self.num_microbatches} microbatches; bytes are those of one device, kept "
            "and sent of one microbatch"
        )

    def __str__(self) -> str:
        lines = [_shortened(line) for line in str(self.schedule).splitlines()]
        told = [] if self.figures is None else [str(self.figures)]
        return "\n".join([self.summary, *told, str(self.table()), *lines])

    def _repr_html_(self) -> str:
        return notebook.block(
            self.summary,
            self.table().to_html(),
            notebook.preformatted(str(self.schedule)),
        )

    def to_json(self) -> str:
        """The plan as JSON text."""
        return _FRAME.write(
            {
                "name": self.name,
                "stages": self.stages,
                "schedule": str(self.schedule),
                "figures": self.figures,
            }
        )

    @staticmethod
    def from_json(text: str) -> StagedPlan:
        """The plan in a JSON text that `to_json` wrote; `PlanError` for other text."""
        return StagedPlan(**_FRAME.read(_HINTS, text))


_FRAME = Frame(
    PlanError,
    "this is no plan of a pipeline",
    {"format": 1},
    prepare={Schedule: lambda entry, path: Schedule.parse(entry)},
    indent=1,
)
"""JSON texts of plans; those of other formats are refused."""

_HINTS: dict[str, Any] = {
    "name": str,
    "stages": tuple[StagePlan, ...],
    "schedule": Schedule,
    "figures": PipelineFigures | None,
}


def _shortened(line: str) -> str:
    if len(line) <= _WIDEST:
        return line
    half = _WIDEST // 2 - 3
    return f"{line[:half]} .... {line[-half:]}"

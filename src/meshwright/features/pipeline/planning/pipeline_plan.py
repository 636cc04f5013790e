"""The plan of a pipeline, planned or built: stages on submeshes, and a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshwright.app.output import notebook
from meshwright.app.output.numbers import show_count, show_seconds, show_share
from meshwright.app.output.table import Table
from meshwright.app.tactic_text import parse_tactics
from meshwright.errors import PlanError
from meshwright.features.pipeline.planning.pipeline_stage import (
    PipelineStage,
    StageChoice,
    run_stages,
)
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.features.pipeline.schedules.simulate import (
    Simulation,
    StageBytes,
    StageTimes,
    peak_bytes,
)
from meshwright.features.pipeline.stages.marks import StagePoint
from meshwright.machine import Mesh
from meshwright.machine.memory_size import show_bytes
from meshwright.partitioner.tactics import Tactic
from meshwright.plain import Frame, hints_of

_WIDEST = 100
"""Most characters per line of a printed schedule; longer lines lose their middle."""


@dataclass(frozen=True, slots=True)
class PipelineFigures:
    """Simulated times of a pipelined step on a machine.

    step_time_s: seconds for all microbatches and for the work that runs once before and
        after them, such as the weight update.
    bubble_fraction: share of the time of all microbatches in which submeshes are idle.
    """

    machine: str
    step_time_s: float
    bubble_fraction: float

    def __str__(self) -> str:
        return (
            f"on {self.machine}: {show_seconds(self.step_time_s)} a step, bubbles "
            f"{show_share(self.bubble_fraction)}"
        )


type SimulateFn = Callable[[PipelinePlan, str | Path], PipelinePlan]
"""A function from a plan and a machine to the plan with simulated times."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """Stages of a step on submeshes, in order, and a schedule of their tasks.

    A task is one pass of one stage over one microbatch. The planner makes such a plan
    (`autoplan` with `pipeline=True`), and a pipelined function describes itself by one.
    name: name of the step's function.
    figures: simulated times on a machine; `None` for a built step before `on` is called.
    schedule_name: of a planned pipeline, the name of a published schedule, or "searched"
        for one that a search found.
    limit_bytes: bytes of each device's memory that the planner may use.
    tried: step seconds of other schedules of these stages, or why they were refused.
    seconds: duration of the planning.
    step: the programs of a built step (`StagedStep`); `None` in a planned or saved plan.
    simulate_fn: function that simulates these programs on a machine, if there are any.
    """

    name: str
    stages: tuple[PipelineStage, ...]
    schedule: Schedule
    figures: PipelineFigures | None = None
    schedule_name: str = ""
    limit_bytes: float | None = None
    tried: tuple[tuple[str, float | str], ...] = ()
    seconds: float = 0.0
    step: Any = field(default=None, compare=False, repr=False)
    simulate_fn: SimulateFn | None = field(default=None, compare=False, repr=False)

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
    def peak_memory_bytes(self) -> tuple[float, ...]:
        """Peak bytes on one device of each submesh, under the schedule.

        Fusion is ignored, so that a compiled step needs less.
        """
        return peak_bytes(self.schedule, [stage.bytes for stage in self.stages])

    def require_memory(self, limit_bytes: float) -> None:
        """Raise `ScheduleError` if a device would need more than `limit_bytes`.

        The message names the stage and the microbatch.
        """
        peak_bytes(self.schedule, [stage.bytes for stage in self.stages], limit_bytes)

    def simulate(self) -> Simulation:
        """Simulate when each task of the schedule runs on its submesh."""
        return run_stages(self.stages, self.schedule)

    @property
    def step_time_s(self) -> float:
        """Seconds of a training step, with the work that stages do once a step."""
        return self._on_machine.step_time_s

    @property
    def _on_machine(self) -> PipelineFigures:
        if self.figures is None:
            raise PlanError('the plan names no machine; wanted plan.on("h100") first')
        return self.figures

    def on(self, machine: str | Path) -> PipelinePlan:
        """This plan with simulated times of a built step on a machine.

        machine: the name of a preset, or a TOML file.
        Raises `PlanError` for a plan without programs: a planned or a saved one.
        """
        if self.simulate_fn is None:
            raise PlanError("a planned or saved pipeline has no programs to simulate")
        return self.simulate_fn(self, machine)

    def table(self) -> Table:
        """A table with one row for each stage: submesh, FLOPs and bytes."""
        titles = (
            "stage", "submesh", ">forward FLOP", ">backward FLOP", ">state",
            ">kept", ">sent", ">peak",
        )  # fmt: skip
        peaks = self.peak_memory_bytes
        return Table(titles, tuple(_cells(s, peaks[s.submesh]) for s in self.stages))

    @property
    def summary(self) -> str:
        """One line: the numbers of stages, submeshes and microbatches."""
        stages, count = f"{len(self.stages)} stages", self.schedule.num_submeshes
        if not self.schedule_name:
            return (
                f"{self.name or 'step'}: {stages} on {count} submeshes, "
                f"{self.num_microbatches} microbatches; bytes are those of one device, "
                "kept and sent of one microbatch"
            )
        if count < len(self.stages):
            stages += f" on {count} submeshes"
        num_devices = sum({s.submesh: s.mesh.num_devices for s in self.stages}.values())
        figures = self._on_machine
        return (
            f"{self.name} on {num_devices} {figures.machine}:"
            f" {figures.step_time_s * 1e3:,.1f} ms a step, {stages},"
            f" {self.num_microbatches} microbatches, {self.schedule_name}, bubble"
            f" {figures.bubble_fraction:.1%}"
        )

    def __str__(self) -> str:
        if self.schedule_name:
            peaks = self.peak_memory_bytes
            lines = [
                _choice_line(stage, stage.choice, peaks[stage.submesh])
                for stage in self.stages
                if stage.choice is not None
            ]
            return "\n".join([self.summary, *lines])
        lines = [_shortened(line) for line in str(self.schedule).splitlines()]
        figures = [] if self.figures is None else [str(self.figures)]
        return "\n".join([self.summary, *figures, str(self.table()), *lines])

    def _repr_html_(self) -> str:
        return notebook.block(
            self.summary,
            self.table().to_html(),
            notebook.preformatted(str(self.schedule)),
        )

    def to_json(self) -> str:
        """The plan as JSON text; tactics and the schedule are written as text."""
        stages = [_stage_entries(stage) for stage in self.stages]
        entries = {"stages": stages, "schedule": str(self.schedule).splitlines()}
        peaks = self.peak_memory_bytes
        return _FRAME.write(_entries(self) | entries, peak_bytes=peaks)

    @staticmethod
    def from_json(text: str) -> PipelinePlan:
        """The plan in a JSON text that `to_json` wrote; `PlanError` for other text."""
        return _FRAME.read(PipelinePlan, text)


_FRAME = Frame(
    PlanError,
    "this is no plan of a pipeline",
    {"format": 2},
    derived=("peak_bytes",),
    prepare={
        Mesh: lambda shape, path: Mesh(shape),
        Schedule: lambda lines, path: Schedule.parse("\n".join(lines)),
        tuple[Tactic, ...]: lambda text, path: parse_tactics(text) if text else (),
    },
    positional=(StagePoint, StageTimes, StageBytes),
    indent=1,
)
"""JSON texts of plans; those of other formats are refused."""


def _entries(record: Any) -> dict[str, Any]:
    """The compared fields of a record by name."""
    return {name: getattr(record, name) for name in hints_of(type(record))}


def _stage_entries(stage: PipelineStage) -> dict[str, Any]:
    """The fields of a stage; tactics are written as text."""
    entries = _entries(stage) | {"mesh": stage.mesh.shape}
    if stage.choice is not None:
        tactics = ", ".join(map(str, stage.choice.tactics))
        entries["choice"] = _entries(stage.choice) | {"tactics": tactics}
    return entries


def _cells(stage: PipelineStage, peak: float) -> tuple[str, ...]:
    """The row of a stage in the table; the work of a planned stage is not known."""
    forward = backward = sent = ""
    if stage.work is not None:
        forward = show_count(stage.work.forward_flops)
        backward = show_count(stage.work.backward_flops)
        sent = show_bytes(stage.work.sent_bytes)
    state, kept = show_bytes(stage.bytes.state), show_bytes(stage.bytes.activations)
    submesh = f"{stage.submesh}: {stage.mesh}"
    return stage.name, submesh, forward, backward, state, kept, sent, show_bytes(peak)


def _choice_line(stage: PipelineStage, choice: StageChoice, peak: float) -> str:
    """One line about a planned stage: layers, devices, strategy, time and memory."""
    (first, end), device = choice.layers, choice.first_device
    return (
        f"  {stage.name}: layers {first}-{end - 1} (from {choice.start}) on devices"
        f" {device}-{device + stage.mesh.num_devices - 1}, {stage.mesh},"
        f" {choice.strategy}: {stage.times.total_s * 1e3:,.1f} ms a microbatch,"
        f" {show_bytes(peak)}"
    )


def _shortened(line: str) -> str:
    if len(line) <= _WIDEST:
        return line
    half = _WIDEST // 2 - 3
    return f"{line[:half]} .... {line[-half:]}"

"""A pipeline plan: stages on submeshes, their tactics, microbatches and a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from meshwright.errors import PlanError
from meshwright.features.pipeline.schedules import (
    Schedule,
    Simulation,
    StageBytes,
    StageTimes,
    simulate,
)
from meshwright.machine import Mesh
from meshwright.machine.memory_size import show_bytes
from meshwright.partitioner.tactics import Tactic
from meshwright.plain import Frame, Prepare, hints_of


@dataclass(frozen=True, slots=True)
class CutPoint:
    """The place in the forward pass at which a stage begins.

    op: index of an op of the captured program.
    iteration: iteration of this op before which the stage begins, if it is a loop over
        layers.
    """

    op: int
    iteration: int = 0

    def __str__(self) -> str:
        return f"op {self.op}" + (f", layer {self.iteration}" if self.iteration else "")


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """A stage of a pipeline: part of a forward pass, with its backward pass and update.

    start: place where it begins; it ends where the next stage begins.
    layers: number of its first layer, and of the layer after its last.
    first_device: number of the submesh's first device; the stage has `mesh.num_devices`
        devices from there on.
    strategy: name of its tactics.
    times: seconds of its tasks for one microbatch.
    once_s: seconds once a step, for sums of gradients and the update.
    bytes: memory of one of its devices.
    send_s: seconds to send a microbatch to the next stage, or its gradient back.
    """

    start: CutPoint
    layers: tuple[int, int]
    first_device: int
    mesh: Mesh
    strategy: str
    tactics: tuple[Tactic, ...]
    times: StageTimes
    once_s: float
    bytes: StageBytes
    send_s: float

    @property
    def num_devices(self) -> int:
        """Number of devices of the stage's submesh."""
        return self.mesh.num_devices


type ReadTactics = Callable[[str], tuple[Tactic, ...]]
"""A function that parses the text of a list of tactics."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """Stages of a train step on submeshes of a machine, and a schedule of their tasks.

    name: name of the train step's function.
    limit_bytes: bytes of each device's memory that the plan may use.
    forward_end: number of ops of the forward pass.
    schedule_name: name of a published schedule, or "searched" for one that a search
        found.
    tried: step seconds of other schedules of these stages, or why they were refused.
    seconds: duration of the planning.
    """

    name: str
    machine: str
    num_devices: int
    limit_bytes: float
    forward_end: int
    stages: tuple[PipelineStage, ...]
    schedule_name: str
    schedule: Schedule
    tried: tuple[tuple[str, float | str], ...] = ()
    seconds: float = 0.0

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

    def simulate(self) -> Simulation:
        """Simulate when each task of the schedule runs on its submesh.

        Raises `ScheduleError` if the schedule exceeds memory.
        """
        return run_stages(self.stages, self.schedule, self.limit_bytes)

    @property
    def step_time_s(self) -> float:
        """Seconds of a training step, with the work that stages do once a step."""
        return step_s(self.stages, self.simulate())

    def to_json(self) -> str:
        """The plan as JSON; tactics and the schedule are written as text."""
        found = self.simulate()
        fields = {
            "name": self.name,
            "machine": self.machine,
            "num_devices": self.num_devices,
            "limit_bytes": self.limit_bytes,
            "forward_end": self.forward_end,
            "schedule_name": self.schedule_name,
            "schedule": str(self.schedule).splitlines(),
            "stages": [_stage_fields(stage) for stage in self.stages],
            "tried": self.tried,
            "seconds": self.seconds,
        }
        figures = {
            "step_time_s": step_s(self.stages, found),
            "bubble_fraction": found.bubble_fraction,
            "peak_bytes": found.peak_bytes,
        }
        return _FRAME.write(fields, figures=figures)

    @staticmethod
    def from_json(text: str, read_tactics: ReadTactics) -> PipelinePlan:
        """The plan that `to_json` has written.

        read_tactics: function that parses a list of tactics.
        """
        prepare: dict[Any, Prepare] = {
            Mesh: lambda shape, path: Mesh(shape),
            Schedule: lambda lines, path: Schedule.parse("\n".join(lines)),
            tuple[Tactic, ...]: lambda text, path: read_tactics(text) if text else (),
        }
        return replace(_FRAME, prepare=prepare).read(PipelinePlan, text)

    def __str__(self) -> str:
        found = self.simulate()
        lines = [
            f"{self.name} on {self.num_devices} {self.machine}:"
            f" {step_s(self.stages, found) * 1e3:,.1f} ms a step,"
            f" {self._stages_text}, {self.num_microbatches} microbatches,"
            f" {self.schedule_name}, bubble {found.bubble_fraction:.1%}"
        ]
        for index, stage in enumerate(self.stages):
            first, end = stage.layers
            peak = found.peak_bytes[self.schedule.placement[index]]
            lines.append(
                f"  {index}: layers {first}-{end - 1} (from {stage.start}) on devices"
                f" {stage.first_device}-{stage.first_device + stage.num_devices - 1},"
                f" {stage.mesh}, {stage.strategy}:"
                f" {stage.times.total_s * 1e3:,.1f} ms a microbatch,"
                f" {show_bytes(peak)}"
            )
        return "\n".join(lines)

    @property
    def _stages_text(self) -> str:
        """The number of stages, and of submeshes if these are fewer."""
        count, submeshes = len(self.stages), self.schedule.num_submeshes
        on = f" on {submeshes} submeshes" if submeshes < count else ""
        return f"{count} stages{on}"


_FRAME = Frame(
    PlanError,
    "this is no pipeline plan",
    {"version": 1},
    derived=("figures",),
    positional=(CutPoint, StageTimes, StageBytes),
    indent=1,
)
"""JSON texts of plans; those of other versions are refused."""


def _stage_fields(stage: PipelineStage) -> dict[str, Any]:
    """The fields of a stage; tactics are written as text."""
    fields = {name: getattr(stage, name) for name in hints_of(PipelineStage)}
    tactics = ", ".join(map(str, stage.tactics))
    return fields | {"mesh": stage.mesh.shape, "tactics": tactics}


def run_stages(
    stages: tuple[PipelineStage, ...], schedule: Schedule, limit_bytes: float
) -> Simulation:
    """Simulate when each task of a schedule of these stages runs.

    Raises `ScheduleError` if a device needs more than `limit_bytes` of memory.
    """
    return simulate(
        schedule,
        [stage.times for stage in stages],
        [stage.send_s for stage in stages[:-1]],
        [stage.bytes for stage in stages],
        limit_bytes,
    )


def step_s(stages: tuple[PipelineStage, ...], found: Simulation) -> float:
    """Seconds of a training step.

    Each submesh runs its tasks of all microbatches, and then the work that its stages
    do once a step. The slowest submesh counts.
    """
    once = [0.0] * len(found.spans)
    for own in range(len(found.spans)):
        for index in {span.task.stage for span in found.spans[own]}:
            once[own] += stages[index].once_s
    ends = [own[-1].end_s for own in found.spans]
    return max(end + more for end, more in zip(ends, once, strict=True))

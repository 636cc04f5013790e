"""A stage of a pipeline, planned or built, and the simulation of stages in a schedule."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.features.pipeline.schedules.simulate import (
    Simulation,
    StageBytes,
    StageTimes,
    simulate,
)
from meshwright.features.pipeline.stages.marks import StagePoint
from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Tactic


@dataclass(frozen=True, slots=True)
class StageChoice:
    """The choices of the planner for one stage.

    start: place where it begins; it ends where the next stage begins.
    layers: number of its first layer, and of the layer after its last.
    first_device: number of the submesh's first device; the stage has `mesh.num_devices`
        devices from there on.
    strategy: name of its tactics.
    """

    start: StagePoint
    layers: tuple[int, int]
    first_device: int
    strategy: str
    tactics: tuple[Tactic, ...]


@dataclass(frozen=True, slots=True)
class StageWork:
    """The work of a stage's programs for one microbatch.

    forward_flops, backward_flops: FLOPs on all devices of the submesh.
    sent_bytes: bytes per device of the values that other stages receive.
    once_sent_bytes: the same of sums over microbatches, which are sent once a step.
    """

    forward_flops: int
    backward_flops: int
    sent_bytes: int
    once_sent_bytes: int = 0


_UNTIMED = StageTimes(0.0, 0.0, 0.0)
"""Times of a stage in a plan without a machine."""


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """A stage of a pipeline: part of a forward pass, with its backward pass and update.

    submesh: index of the stage's submesh, on which other stages may be, too.
    bytes: memory of one of its devices.
    times: seconds of its tasks for one microbatch; 0 for a plan without a machine.
    once_s: seconds once a step, for sums of gradients and the update.
    once_bytes: bytes beside the state while this work runs, if `bytes` has not got them.
    send_s: seconds to send a microbatch to the next stage, or its gradient back.
    choice: only of a stage that the planner has chosen. work: only of a built stage.
    tactics: those that partition the stage.
    """

    name: str
    submesh: int
    mesh: Mesh
    bytes: StageBytes
    times: StageTimes = _UNTIMED
    once_s: float = 0.0
    once_bytes: float = 0.0
    send_s: float = 0.0
    choice: StageChoice | None = None
    work: StageWork | None = None
    tactics: tuple[Tactic, ...] = ()


def run_stages(
    stages: tuple[PipelineStage, ...],
    schedule: Schedule,
    limit_bytes: float = float("inf"),
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


def bubble_free_s(stages: tuple[PipelineStage, ...], num_microbatches: int) -> float:
    """Seconds of a step without bubbles, a lower bound for all schedules.

    stages: stages of which each has its own submesh.
    """
    return max(num_microbatches * s.times.total_s + s.once_s for s in stages)


def step_s(stages: tuple[PipelineStage, ...], simulation: Simulation) -> float:
    """Seconds of a training step.

    Each submesh runs its tasks of all microbatches, and then the work that its stages
    do once a step. The slowest submesh counts.
    """
    once = [0.0] * len(simulation.spans)
    for submesh, spans in enumerate(simulation.spans):
        for index in {span.task.stage for span in spans}:
            once[submesh] += stages[index].once_s
    ends = [spans[-1].end_s for spans in simulation.spans]
    return max(end + more for end, more in zip(ends, once, strict=True))

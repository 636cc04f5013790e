"""The plan of a staged step: FLOPs and bytes of each stage, from its device programs."""

from collections.abc import Iterable, Sequence
from functools import partial

from meshwright.features.pipeline.build import StagedStep, stage_programs
from meshwright.features.pipeline.planning.pipeline_plan import PipelinePlan
from meshwright.features.pipeline.planning.pipeline_stage import (
    PipelineStage,
    StageWork,
)
from meshwright.features.pipeline.schedules.simulate import StageBytes
from meshwright.features.pipeline.simulated import simulate_step
from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.microbatches import flops_of
from meshwright.features.pipeline.stages.stage_part import PartKind, StagePart
from meshwright.features.pipeline.stages.tasks import StageTasks, TaskProgram
from meshwright.program.analysis.live_ranges import peak_bytes
from meshwright.program.ir import Atom, Value, num_bytes


def make_plan(step: StagedStep) -> PipelinePlan:
    """The plan of a staged step, which needs no devices: stage figures and schedule."""
    stages = tuple(
        _stage(step, number, lowered, tasks)
        for number, (lowered, tasks) in enumerate(stage_programs(step))
    )
    return PipelinePlan(
        step.captured.name,
        stages,
        step.schedule,
        step=step,
        simulate_fn=partial(simulate_step, step),
    )


def _stage(
    step: StagedStep, number: int, lowered: LoweredStep, tasks: StageTasks
) -> PipelineStage:
    submesh = step.schedule.placement[number]
    devices = step.submeshes[submesh].num_devices
    every = lowered.sends.values()
    parts = (StagePart(PartKind.FORWARD, number), StagePart(PartKind.BACKWARD, number))
    sends = [s for s in every if s.part in parts]
    passes = (tasks.forward, tasks.backward)
    once = {*lowered.lowered.program.inputs, *tasks.before.outputs} - lowered.varying
    read = {v for task in (*passes, *tasks.updates.values()) for v in task.inputs}
    received = {s.received for s in every if s.to == number} & lowered.varying
    inside = {*tasks.forward.outputs, *received}
    kept = _bytes(inside & {*tasks.backward.inputs})
    kept_for_weights = _bytes(
        {*tasks.weight_gradient.inputs} & {*inside, *tasks.input_gradient.outputs}
    )
    return PipelineStage(
        step.staged.cuts.names[number],
        submesh,
        step.submeshes[submesh],
        StageBytes(
            state=_bytes(once & (read | {*tasks.before.outputs})),
            activations=kept,
            for_weights=min(kept_for_weights, kept),
            working=max(map(_working_bytes, (*passes, *tasks.updates.values()))),
        ),
        work=StageWork(
            forward_flops=devices * _flops(tasks.forward),
            backward_flops=devices * _flops(tasks.backward),
            sent_bytes=_bytes({s.value for s in sends}),
        ),
    )


def _flops(task: TaskProgram) -> int:
    return sum(map(flops_of, task.program.ops))


def _bytes(values: Iterable[Atom]) -> int:
    return sum(num_bytes(v) for v in values if isinstance(v, Value))


def _working_bytes(task: TaskProgram) -> int:
    """Peak bytes of a task (one pass of a stage) without the bytes of its inputs."""
    held: Sequence[Value] = task.program.inputs
    return max(0, peak_bytes(task.program) - sum(map(num_bytes, held)))

"""The plan of a staged step: FLOPs and bytes of each stage, from its device programs."""

from collections.abc import Iterable, Sequence

from meshwright.features.pipeline.build import StagedStep, stage_programs
from meshwright.features.pipeline.stage_plan import StagePlan
from meshwright.features.pipeline.staged_plan import StagedPlan
from meshwright.features.pipeline.stages import (
    LoweredStep,
    StageTasks,
    TaskProgram,
    flops_of,
)
from meshwright.partitioner.structure.parts import PartKind, StagePart
from meshwright.program.analysis.live_ranges import peak_bytes
from meshwright.program.ir import Atom, Value, num_bytes


def make_plan(step: StagedStep) -> StagedPlan:
    """The plan of a staged step, which needs no devices: stage figures and schedule."""
    stages = tuple(
        _stage_plan(step, number, lowered, tasks)
        for number, (lowered, tasks) in enumerate(stage_programs(step))
    )
    return StagedPlan(step.captured.name, stages, step.schedule, step=step)


def _stage_plan(
    step: StagedStep, number: int, lowered: LoweredStep, tasks: StageTasks
) -> StagePlan:
    submesh = step.schedule.placement[number]
    devices = step.submeshes[submesh].num_devices
    every = lowered.sends.values()
    sends = [s for s in every if s.part.stage == number and _is_pass(s.part)]
    passes = (tasks.forward, tasks.backward)
    once = {*lowered.lowered.program.inputs, *tasks.before.outputs} - lowered.varying
    read = {v for task in (*passes, *tasks.updates.values()) for v in task.inputs}
    received = {s.received for s in every if s.to == number} & lowered.varying
    inside = {*tasks.forward.outputs, *received}
    return StagePlan(
        step.staged.cuts.names[number],
        submesh,
        str(step.submeshes[submesh]),
        devices * _flops(tasks.forward),
        devices * _flops(tasks.backward),
        _bytes(once & (read | {*tasks.before.outputs})),
        _bytes(inside & {*tasks.backward.inputs}),
        _bytes(
            {*tasks.weight_gradient.inputs} & {*inside, *tasks.input_gradient.outputs}
        ),
        _bytes({s.value for s in sends}),
        max(map(_working_bytes, (*passes, *tasks.updates.values()))),
    )


def _is_pass(part: StagePart) -> bool:
    return part.kind is not PartKind.UPDATE


def _flops(task: TaskProgram) -> int:
    return sum(map(flops_of, task.program.ops))


def _bytes(values: Iterable[Atom]) -> int:
    return sum(num_bytes(v) for v in values if isinstance(v, Value))


def _working_bytes(task: TaskProgram) -> int:
    """Peak bytes of a task (one pass of a stage) without the bytes of its inputs."""
    held: Sequence[Value] = task.program.inputs
    return max(0, peak_bytes(task.program) - sum(map(num_bytes, held)))

"""The plan of a staged step: FLOPs and bytes of each stage, from its device programs."""

from collections.abc import Iterable, Sequence
from math import prod

from meshwright.app.record.plan_record import count_parameters
from meshwright.errors import ScheduleError
from meshwright.features.pipeline.pipeline_options import Options
from meshwright.features.pipeline.plan.pipeline_plan import PipelinePlan
from meshwright.features.pipeline.planning.pipeline_stage import (
    PipelineStage,
    StageWork,
)
from meshwright.features.pipeline.schedules.generators import SCHEDULES
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.features.pipeline.schedules.simulate import StageBytes
from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.microbatches import flops_of
from meshwright.features.pipeline.stages.stage_part import PartKind, StagePart
from meshwright.features.pipeline.stages.staged_step import StagedStep, stage_programs
from meshwright.features.pipeline.stages.tasks import StageTasks, TaskProgram
from meshwright.machine.memory_size import show_bytes
from meshwright.program.analysis.live_ranges import peak_bytes
from meshwright.program.analysis.token_input import find_token_input
from meshwright.program.ir import Atom, Value, num_bytes


def make_plan(step: StagedStep, options: Options) -> PipelinePlan:
    """The plan of a staged step, which needs no devices: stage figures and schedule."""
    stages = tuple(
        _stage(step, number, lowered, tasks)
        for number, (lowered, tasks) in enumerate(stage_programs(step))
    )
    program, source = step.source.program, step.source
    sent = max(stage.work.once_sent_bytes for stage in stages if stage.work)
    tokens = find_token_input(program, set(source.ties.values()))
    return PipelinePlan(
        stages,
        step.schedule,
        starts=options.stages,
        batch=options.batch,
        statistics=options.statistics,
        schedule_name=name_of(step.schedule),
        limit_bytes=options.memory_bytes,
        recorded_parameters=count_parameters(step.decided[0]),
        notes=(_SHARED.format(show_bytes(sent)),) if sent >= _MUCH else (),
        step=step,
        name=source.name,
        tokens_per_step=None if tokens is None else prod(program.inputs[tokens].shape),
        token_input="" if tokens is None else source.paths[tokens],
    )


_MUCH = 2**26
"""Least bytes sent once a step that a note is about: 3 ms on a network card of 200 Gb/s."""

_SHARED = (
    "gradients of weights that several stages read, such as a tied embedding, are sent "
    "once a step to the stage that holds them, {} from a device"
)


def name_of(schedule: Schedule) -> str:
    """The name of the published schedule that is equal to this one; "" if none is."""
    for name, generator in SCHEDULES.items():
        try:
            published = generator(schedule.num_stages, schedule.num_microbatches)
        except ScheduleError:
            continue
        if published == schedule:
            return name
    return ""


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
            working=max(map(_working_bytes, passes)),
        ),
        once_bytes=max(map(_working_bytes, tasks.updates.values()), default=0),
        work=StageWork(
            forward_flops=devices * _flops(tasks.forward),
            backward_flops=devices * _flops(tasks.backward),
            sent_bytes=_bytes({s.value for s in sends} & lowered.varying),
            once_sent_bytes=_bytes(
                s.value
                for s in every
                if s.part.stage == number and s.value not in lowered.varying
            ),
        ),
        tactics=step.decided[number].tactics,
    )


def _flops(task: TaskProgram) -> int:
    return sum(map(flops_of, task.program.ops))


def _bytes(values: Iterable[Atom]) -> int:
    return sum(num_bytes(v) for v in values if isinstance(v, Value))


def _working_bytes(task: TaskProgram) -> int:
    """Peak bytes of a task (one pass of a stage) without the bytes of its inputs."""
    held: Sequence[Value] = task.program.inputs
    return max(0, peak_bytes(task.program) - sum(map(num_bytes, held)))

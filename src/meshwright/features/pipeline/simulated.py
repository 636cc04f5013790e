"""The simulated time of a pipelined step on a machine.

First each task (one pass of a stage over one microbatch) is simulated alone. Then the
schedule of the tasks is simulated with these times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path

from meshwright.features.pipeline.build import StagedStep, stage_programs
from meshwright.features.pipeline.planning.pipeline_plan import (
    PipelineFigures,
    PipelinePlan,
)
from meshwright.features.pipeline.planning.pipeline_stage import PipelineStage
from meshwright.features.pipeline.schedules.schedule import TaskKind
from meshwright.features.pipeline.schedules.simulate import StageTimes
from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.tasks import StageTasks, TaskProgram
from meshwright.machine import Machine, load_machine
from meshwright.machine.placement import Placement
from meshwright.partitioner.decide import Decided
from meshwright.predict.estimate import estimate
from meshwright.predict.links.transfer import busiest_bytes, transfer_s
from meshwright.program.ir import num_bytes


def simulate_step(
    step: StagedStep, plan: PipelinePlan, machine: str | Path
) -> PipelinePlan:
    """The plan of a built step with its simulated times on a machine.

    machine: name or file of a machine, which is taken with as many devices as all submeshes
        have.
    """
    is_split = any(
        task.kind is TaskKind.INPUT_GRADIENT
        for order in step.schedule.orders
        for task in order
    )
    programs = stage_programs(step)
    whole = load_machine(machine, sum(mesh.num_devices for mesh in step.submeshes))
    send_s = (*_transfers_s(step, programs, whole), 0.0)
    stages: list[PipelineStage] = []
    for number, (_, tasks) in enumerate(programs):
        mesh = plan.stages[number].mesh
        part = load_machine(machine, mesh.num_devices)
        decided = step.decided[number]
        placement = _placement(decided, part, tasks)
        task_s = partial(_task_s, decided, part, placement)
        stage = replace(
            plan.stages[number],
            times=_times(task_s, tasks, is_split),
            once_s=sum(map(task_s, (tasks.before, *tasks.updates.values()))),
            send_s=send_s[number],
        )
        stages.append(stage)
    timed = replace(plan, stages=tuple(stages))
    simulation = timed.simulate()
    step_time_s = simulation.makespan_s + max(stage.once_s for stage in stages)
    figures = PipelineFigures(str(machine), step_time_s, simulation.bubble_fraction)
    return replace(timed, figures=figures)


def _placement(decided: Decided, machine: Machine, tasks: StageTasks) -> Placement:
    """Where the axes of a stage's submesh lie: as its backward pass is fastest.

    All tasks of a stage run on the same devices. A stage without a backward pass is
    placed by its forward pass.
    """
    task = tasks.backward if tasks.backward.program.ops else tasks.forward
    return estimate(_alone(decided, task), machine).placement


def _task_s(
    decided: Decided, machine: Machine, placement: Placement, task: TaskProgram
) -> float:
    """Simulated seconds of one run of a task; 0 for a task without ops.

    decided: the decisions about the step on the submesh of the task's stage.
    placement: where the axes of the submesh lie.
    """
    if not task.program.ops:
        return 0.0
    return estimate(_alone(decided, task), machine, placement=placement).step_time_s


def _alone(decided: Decided, task: TaskProgram) -> Decided:
    """The decisions about a stage with one of its tasks as the whole program."""
    captured = replace(decided.captured, ties={}, donated=())
    lowered = replace(decided.lowered, program=task.program)
    return replace(decided, captured=captured, lowered=lowered)


def _times(
    task_s: Callable[[TaskProgram], float], tasks: StageTasks, is_split: bool
) -> StageTimes:
    """Simulated seconds of a stage's forward pass, input gradients and weight gradients.

    task_s: function from a task to its simulated seconds.
    is_split: whether the schedule runs the two kinds of gradients as separate tasks. If
        not, the input gradients have the time of the whole backward pass.
    """
    forward = task_s(tasks.forward)
    if not is_split:
        return StageTimes(forward, task_s(tasks.backward), 0.0)
    inner, rest = map(task_s, (tasks.input_gradient, tasks.weight_gradient))
    return StageTimes(forward, inner, rest)


def _transfers_s(
    step: StagedStep,
    programs: Sequence[tuple[LoweredStep, StageTasks]],
    machine: Machine,
) -> tuple[float, ...]:
    """Seconds to send one microbatch's values from each stage to the next, or back.

    The slower direction counts. Submeshes have consecutive devices. A value for a later
    stage than the next takes the same way out of its stage.
    machine: all devices of the submeshes.
    """
    sizes = [mesh.num_devices for mesh in step.submeshes]
    lasts = list(accumulate(sizes))
    placement = step.schedule.placement
    devices = [range(lasts[at] - sizes[at], lasts[at]) for at in placement]
    sent: defaultdict[tuple[int, bool], float] = defaultdict(float)
    for number, (lowered, _) in enumerate(programs):
        for index, send in lowered.sends.items():
            if send.part.stage != number or send.value not in lowered.varying:
                continue
            received = num_bytes(programs[send.to][0].sends[index].received)
            counts = len(devices[number]), len(devices[send.to])
            is_forward = send.to > number
            hop = number if is_forward else number - 1
            sent[hop, is_forward] += busiest_bytes(received, *counts)
    return tuple(
        transfer_s(max(sent[hop, True], sent[hop, False]), before, after, machine)
        for hop, (before, after) in enumerate(pairwise(devices))
    )

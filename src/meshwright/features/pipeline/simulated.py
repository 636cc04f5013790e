"""The simulated time of a pipelined step on a machine.

First each task (one pass of a stage over one microbatch) is simulated alone. Then the
schedule of the tasks is simulated with these times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from meshwright.features.pipeline.build import StagedStep, stage_programs
from meshwright.features.pipeline.planning.pipeline_plan import (
    PipelineFigures,
    PipelinePlan,
)
from meshwright.features.pipeline.planning.pipeline_stage import PipelineStage
from meshwright.features.pipeline.schedules.schedule import TaskKind
from meshwright.features.pipeline.schedules.simulate import StageTimes
from meshwright.features.pipeline.stages.tasks import StageTasks, TaskProgram
from meshwright.machine import Machine, Mesh, load_machine
from meshwright.machine.placement import Placement, place_mesh
from meshwright.partitioner.decide import Decided
from meshwright.predict.estimate import estimate
from meshwright.predict.links.collective import permute_s


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
    send_s = (*_transfers_s(plan.stages, step, machine), 0.0)
    stages: list[PipelineStage] = []
    for number, (_, tasks) in enumerate(stage_programs(step)):
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
    stages: Sequence[PipelineStage], step: StagedStep, machine: str | Path
) -> tuple[float, ...]:
    """Seconds to send one microbatch's values from each stage to the next.

    Each device sends its part to one device of the next submesh.
    """
    sizes = [mesh.num_devices for mesh in step.submeshes]
    if len(sizes) == 1:
        return (0.0,) * (len(stages) - 1)
    is_equal = len(set(sizes)) == 1
    mesh = Mesh(
        {"stage": len(sizes), "all": sizes[0]} if is_equal else {"stage": sum(sizes)}
    )
    placement = place_mesh(mesh, load_machine(machine, sum(sizes)))
    segments = placement.of(("stage",))
    sent = [stage.work.sent_bytes for stage in stages if stage.work is not None]
    return tuple(permute_s(max(pair), segments) for pair in pairwise(sent))

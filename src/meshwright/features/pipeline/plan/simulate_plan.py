"""The simulated step of a pipeline on a machine: times, memory and figures.

First each task (one pass of a stage over one microbatch) is simulated alone. Then the
schedule of the tasks is simulated with these times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

from meshwright.errors import MachineError
from meshwright.features.pipeline.plan.pipeline_figures import pipeline_figures
from meshwright.features.pipeline.plan.pipeline_record import PipelineRecord
from meshwright.features.pipeline.plan.simulated_step import (
    SimulatedStep,
    SimulatedTask,
)
from meshwright.features.pipeline.plan.task_estimates import simulated_tasks
from meshwright.features.pipeline.planning.pipeline_stage import PipelineStage
from meshwright.features.pipeline.planning.stage_mesh import submachine
from meshwright.features.pipeline.schedules.schedule import TaskKind
from meshwright.features.pipeline.schedules.simulate import StageTimes
from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.staged_step import StagedStep, stage_programs
from meshwright.features.pipeline.stages.tasks import StageTasks
from meshwright.machine import Machine, load_machine
from meshwright.predict.energy import Location
from meshwright.predict.links.transfer import busiest_bytes, transfer_s
from meshwright.program.ir import num_bytes


def simulate_plan[Record: PipelineRecord](
    plan: Record,
    step: StagedStep,
    machine: Machine | str | Path,
    place: Location | None,
    donate_state: bool,
) -> Record:
    """The plan of a built step with its simulated times, memory and figures."""
    whole = _whole_machine(machine, plan.num_devices)
    sizes = {mesh.num_devices for mesh in step.submeshes}
    parts = {size: submachine(whole, size) for size in sizes}
    programs = stage_programs(step)
    tasks = simulated_tasks(step, programs, parts, donate_state)
    simulated = SimulatedStep(whole, place, donate_state, tasks)
    each_s, once_s = _transfers_s(plan.stages, step, programs, whole)
    stages = tuple(
        _timed(stage, simulated.of_stage(number), each_s[number], once_s[number])
        for number, stage in enumerate(plan.stages)
    )
    return with_figures(replace(plan, stages=stages, simulated=simulated))


def with_figures[Record: PipelineRecord](plan: Record) -> Record:
    """A plan whose tasks are simulated, with the figures of its schedule."""
    simulation = plan.simulate()
    figures = pipeline_figures(plan, simulation)
    return replace(plan, figures=figures, bubble_fraction=simulation.bubble_fraction)


def _whole_machine(machine: Machine | str | Path, num_devices: int) -> Machine:
    """The machine with all devices of all submeshes."""
    if not isinstance(machine, Machine):
        return load_machine(machine, num_devices)
    if machine.num_devices != num_devices:
        raise MachineError(
            f"the submeshes have {num_devices} devices, {machine.name} has "
            f"{machine.num_devices}; give a machine of as many devices, or its name"
        )
    return machine


def _timed(
    stage: PipelineStage,
    tasks: Sequence[SimulatedTask],
    send_s: float,
    once_sent_s: float,
) -> PipelineStage:
    """A stage with the seconds and the working bytes of its simulated tasks.

    send_s, once_sent_s: seconds to send a microbatch, and sums over all of them.
    """
    seconds = {task.kind: task.estimate.step_time_s for task in tasks if task.kind}
    backward_s = seconds.get(TaskKind.BACKWARD)
    times = StageTimes(
        seconds.get(TaskKind.FORWARD, 0.0),
        seconds.get(TaskKind.INPUT_GRADIENT, 0.0) if backward_s is None else backward_s,
        seconds.get(TaskKind.WEIGHT_GRADIENT, 0.0),
    )
    passes = [task for task in tasks if task.kind is not None]
    once = [task for task in tasks if task.kind is None]
    working = max((task.working_bytes for task in passes), default=0.0)
    return replace(
        stage,
        bytes=replace(stage.bytes, working=working),
        times=times,
        once_s=once_sent_s + sum(task.estimate.step_time_s for task in once),
        once_bytes=max((task.working_bytes for task in once), default=0.0),
        send_s=send_s,
    )


def _transfers_s(
    stages: Sequence[PipelineStage],
    step: StagedStep,
    programs: Sequence[tuple[LoweredStep, StageTasks]],
    machine: Machine,
) -> tuple[list[float], list[float]]:
    """Seconds to send values from each stage to others: of a microbatch, and once a step.

    Of the two directions the slower one counts. Submeshes have consecutive devices. A value
    for a later stage than the next takes the same way out of its stage.
    machine: all devices of the submeshes.
    """
    sizes = [mesh.num_devices for mesh in step.submeshes]
    lasts = list(accumulate(sizes))
    devices = [
        range(lasts[at] - sizes[at], lasts[at]) for at in step.schedule.placement
    ]
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
    each_s = [
        transfer_s(max(sent[hop, True], sent[hop, False]), before, after, machine)
        for hop, (before, after) in enumerate(pairwise(devices))
    ]
    ends = [*pairwise(devices), (devices[-1], devices[-2])] if each_s else []
    once = [0 if stage.work is None else stage.work.once_sent_bytes for stage in stages]
    once_s = [
        transfer_s(size, *pair, machine) if size else 0.0
        for size, pair in zip(once, ends, strict=False)
    ]
    return [*each_s, 0.0], once_s or [0.0] * len(stages)

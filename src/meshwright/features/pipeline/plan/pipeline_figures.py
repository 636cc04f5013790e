"""Figures of a pipeline's step: those of its simulated tasks, put together.

Seconds are means over the devices of all stages, so that they add up to the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict

from meshwright.features.pipeline.plan.pipeline_record import PipelineRecord
from meshwright.features.pipeline.plan.simulated_step import SimulatedTask
from meshwright.features.pipeline.planning.pipeline_stage import step_s
from meshwright.features.pipeline.schedules.simulate import Simulation
from meshwright.predict.estimate import Estimate
from meshwright.predict.figures import (
    Figures,
    make_figures,
    spending,
    widened_dtypes,
)
from meshwright.predict.simulate.shares import LineTime, bound_times, line_times
from meshwright.predict.utilisation import utilisation

_LINES = 10
"""Number of source lines that figures name."""

BUBBLE = "bubble"
"""Key of a breakdown for the mean seconds in which a device waits for other stages."""


def pipeline_figures(plan: PipelineRecord, simulation: Simulation) -> Figures:
    """The figures of a plan whose tasks are simulated.

    simulation: the schedule with the seconds of these tasks.
    """
    found, step = plan.simulated_step, plan.step
    assert step is not None, "tasks of a built step are simulated"
    machine = found.machine
    seconds, chip = step_s(plan.stages, simulation), machine.chip
    program = step.source.program
    peaks = plan.peak_bytes
    fullest = _fullest_task(plan, max(range(len(peaks)), key=peaks.__getitem__))
    at_peak = make_figures(fullest.decided, fullest.estimate, found.place)
    usable = chip.usable_bytes
    return Figures(
        machine=machine.name,
        num_devices=machine.num_devices,
        step_time_s=seconds,
        peak_memory_bytes=int(max(peaks)),
        usable_bytes=min(usable, plan.limit_bytes or usable),
        breakdown=_breakdown(plan, seconds),
        largest=at_peak.largest,
        peak_source=at_peak.peak_source,
        collective_s=(),
        compute_bounds=_by_time(_mean(plan, lambda e: bound_times(e.timeline))),
        lines=tuple(_lines(plan)),
        widened=widened_dtypes(program, chip),
        **asdict(utilisation(program, program, seconds, machine)),
        **asdict(spending(machine, seconds, found.place)),
    )


def _fullest_task(plan: PipelineRecord, submesh: int) -> SimulatedTask:
    """The task that needs most memory while it runs, of the stages of a submesh."""
    mine = [
        task
        for task in plan.simulated_step.tasks
        if plan.stages[task.stage].submesh == submesh
    ]
    return max(mine, key=lambda task: task.estimate.peak_memory_bytes)


def _shares(plan: PipelineRecord) -> Iterator[tuple[Estimate, float]]:
    """Each task's simulated run, and its executions in a step on a mean device."""
    for task in plan.simulated_step.tasks:
        devices = plan.stages[task.stage].mesh.num_devices
        yield task.estimate, task.runs * devices / plan.num_devices


def _mean(
    plan: PipelineRecord, seconds_of: Callable[[Estimate], Mapping[str, float]]
) -> dict[str, float]:
    """The sums over all tasks of named seconds, as means over the devices."""
    sums: dict[str, float] = defaultdict(float)
    for estimate, share in _shares(plan):
        for name, seconds in seconds_of(estimate).items():
            sums[name] += share * seconds
    return dict(sums)


def _breakdown(plan: PipelineRecord, step_time_s: float) -> dict[str, float]:
    """Seconds by activity; what the tasks leave of the step are bubbles."""
    parts = _mean(plan, lambda estimate: estimate.breakdown)
    visible = sum(s for name, s in parts.items() if not name.endswith("hidden"))
    return parts | {BUBBLE: max(0.0, step_time_s - visible)}


def _by_time(seconds: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _lines(plan: PipelineRecord) -> list[LineTime]:
    """The source lines that take most of the step, the longest first."""
    compute_s: dict[str, float] = defaultdict(float)
    exposed_s: dict[str, float] = defaultdict(float)
    for estimate, share in _shares(plan):
        for line in line_times(estimate.timeline):
            compute_s[line.source] += share * line.compute_s
            exposed_s[line.source] += share * line.exposed_s
    lines = [LineTime(name, compute_s[name], exposed_s[name]) for name in compute_s]
    return sorted(lines, key=lambda line: (-line.seconds, line.source))[:_LINES]

"""Simulated schedules of built stages as the candidates of a search, the best first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from meshwright.errors import ScheduleError
from meshwright.features.pipeline.plan.pipeline_plan import PipelinePlan
from meshwright.features.pipeline.schedules.generators import SCHEDULES
from meshwright.features.pipeline.schedules.schedule import Schedule, TaskKind
from meshwright.machine import Mesh
from meshwright.planner.candidates.candidate import Candidate, visible_parts
from meshwright.planner.candidates.search_result import SearchResult

_METHOD = "pipeline"
"""The name of the search in `SearchResult.method`."""


def with_candidates(plan: PipelinePlan, seconds: float, only: str = "") -> PipelinePlan:
    """The plan with the fastest schedule of its built stages that fits into memory.

    Its search lists all published schedules that place the stages alike.
    seconds: duration of the search. only: name of the only schedule to try; "" for all.
    """
    others = () if only else _others(plan)
    plans = sorted([plan, *others], key=lambda each: (not each.fits, each.step_time_s))
    best = plans[0]
    limit = (
        best.machine.chip.usable_bytes if best.limit_bytes is None else best.limit_bytes
    )
    search = SearchResult(
        candidates=tuple(candidate_of(each, _name(each)) for each in plans),
        limit_bytes=limit,
        model_s=0.0,
        bound_s=0.0,
        seconds=seconds,
        num_meshes=1,
        all_meshes=1,
        method=_METHOD,
    )
    return replace(best, search=search)


def candidate_of(plan: PipelinePlan, name: str) -> Candidate:
    """A simulated pipeline as a row in the table of a search."""
    meshes = {stage.submesh: stage.mesh for stage in plan.stages}
    is_equal = len(set(meshes.values())) == 1
    inner = plan.stages[0].mesh.shape if is_equal else {}
    figures = plan.figures
    assert figures is not None, "the plan names a machine"
    return Candidate(
        name,
        Mesh({"stage": len(meshes), **inner}),
        (),
        step_time_s=figures.step_time_s,
        peak_memory_bytes=figures.peak_memory_bytes,
        breakdown=visible_parts(figures.breakdown),
        limit_bytes=figures.usable_bytes,
    )


def _name(plan: PipelinePlan) -> str:
    schedule = plan.schedule_name or "searched"
    return f"{schedule}, {plan.num_microbatches} microbatches"


def _others(plan: PipelinePlan) -> Iterator[PipelinePlan]:
    """The plan with each other published schedule that has the same submeshes."""
    found, step = plan.simulated_step, plan.step
    assert step is not None, "the plan was built"
    by_split = {_is_split(plan.schedule): plan}
    if len(plan.stages) == 1:
        return
    for name, generator in SCHEDULES.items():
        try:
            schedule = generator(len(plan.stages), plan.num_microbatches)
        except ScheduleError:
            continue
        if name == plan.schedule_name or schedule.placement != plan.schedule.placement:
            continue
        is_split = _is_split(schedule)
        if is_split not in by_split:
            other = replace(
                plan, schedule=schedule, step=replace(step, schedule=schedule)
            )
            by_split[is_split] = other.on(
                found.machine, found.place, found.donate_state
            )
        yield by_split[is_split].scheduled(schedule, name)


def _is_split(schedule: Schedule) -> bool:
    """Whether gradients of inputs and of weights are tasks of their own."""
    return any(
        task.kind is TaskKind.INPUT_GRADIENT
        for order in schedule.orders
        for task in order
    )

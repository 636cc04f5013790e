"""`autoplan` with `pipeline`: search for the pipeline plan of a step, or for both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from meshwright.app.plan import Plan
from meshwright.errors import PlanError, StageError
from meshwright.features.pipeline.batch_sizes import ResizableStep
from meshwright.features.pipeline.build import StageTacticError, stage
from meshwright.features.pipeline.describe import make_plan
from meshwright.features.pipeline.pipeline_options import Options, planned_options
from meshwright.features.pipeline.plan.pipeline_plan import PipelinePlan
from meshwright.features.pipeline.planning.pipeline_planner import PipelinePlanner
from meshwright.features.pipeline.planning.pipeline_task import PipelineTask
from meshwright.features.pipeline.planning.planned_pipeline import PlannedPipeline
from meshwright.features.pipeline.schedule_candidates import (
    candidate_of,
    with_candidates,
)
from meshwright.features.pipeline.stages.staged_step import StagedStep
from meshwright.machine.memory_size import show_bytes
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.driver.request import SearchRequest
from meshwright.program.capture import Captured
from meshwright.search.work import WorkMeter

_SAME_ORDER = ("step_time", "cost", "energy", "carbon")
"""Objectives that rank plans on a given machine by the time of a step."""


def find_pipeline(
    fn: Callable[..., Any],
    args: Sequence[Any],
    request: SearchRequest,
    schedule: str = "",
) -> PipelinePlan:
    """The fastest pipeline plan for `fn(*args)` on the machine that a search request names.

    schedule: name of the only schedule to try; "" for all, and searched ones.
    Its stages are built and simulated, so that its figures are those of `plan.on`. Raises
    `PlanError` if no pipeline fits, if the step has no backward pass or no batch, or for
    options that a pipeline does not take.
    """
    why_not = refused_option(request)
    if why_not:
        raise PlanError(why_not)
    resolved = request.resolve()
    began_s = time.monotonic()
    step = ResizableStep(fn, tuple(args))
    task = PipelineTask(
        step.captured.name,
        step.capture,
        step.batch,
        resolved.machine,
        resolved.limit,
        schedule=schedule,
        on_progress=request.on_progress,
        meter=WorkMeter.for_budget(request.budget_s),
    )
    plan = _fitting_plan(
        step.captured,
        PipelinePlanner(task),
        lambda plan: plan.on(resolved.machine, resolved.place, donate_state=True),
    )
    plan = with_candidates(plan, time.monotonic() - began_s, schedule)
    return _confirmed(plan) if request.confirm else plan


_MOST_SEARCHES = 4
"""Largest number of searches for stages that still fit once they are built."""

_MARGIN = 0.98
"""Share of a lower limit that is asked for, so that no plan is found twice."""


def _fitting_plan(
    captured: Captured,
    planner: PipelinePlanner,
    on_machine: Callable[[PipelinePlan], PipelinePlan],
) -> PipelinePlan:
    """The plan of the best stages that fit once they are built.

    The planner prices blocks of ops, and adds them up to stages. If built stages need more
    memory than that, it searches again, for stages that need less by its own figures.
    """
    task = planner.task
    for _ in range(_MOST_SEARCHES):
        plan, priced_bytes = _buildable_plan(captured, planner, task.limit_bytes)
        plan = on_machine(plan)
        if plan.fits:
            return plan
        share = _MARGIN * task.limit_bytes / plan.peak_memory_bytes
        planner.task = replace(planner.task, limit_bytes=share * priced_bytes)
        task.on_progress(
            f"the built stages need {show_bytes(plan.peak_memory_bytes)} of "
            f"{show_bytes(task.limit_bytes)}; searching for smaller ones"
        )
    raise PlanError(
        f"no pipeline was found that fits into {show_bytes(task.limit_bytes)} of a device "
        f"once its stages are built, in {_MOST_SEARCHES} searches; use more devices, or a "
        "smaller batch"
    )


def _buildable_plan(
    captured: Captured, planner: PipelinePlanner, limit_bytes: float
) -> tuple[PipelinePlan, float]:
    """The plan of the best stages that can be built, and the bytes that it was priced at.

    The planner prices strategies on the captured step. In the built step, each layer of a
    loop has ops and weights of its own, and tactics may find nothing to cut there: the
    planner then searches without them. If the batch cannot be divided into microbatches,
    it searches with a single one.
    """
    while True:
        planned = planner.best()
        planner.task.on_progress("building the stages of the best pipeline")
        priced_bytes = max(planned.simulate().peak_bytes)
        try:
            plan = built_plan(captured, replace(planned, limit_bytes=limit_bytes))
        except StageTacticError as error:
            planner.leave_out(error.tactics, str(error))
        except StageError as error:
            if planned.num_microbatches == 1:
                raise PlanError(
                    f"the pipeline that the search found cannot be built: {error}"
                ) from error
            planner.task.on_progress(f"one microbatch alone: {error}")
            planner.task = replace(planner.task, microbatches=(1,))
        else:
            return plan, priced_bytes


def refused_option(request: SearchRequest) -> str:
    """Why a pipeline is not searched under the options of a request; "" if it is."""
    allowed = {
        "tactics": (
            bool(request.tactics),
            "tactics that a plan has to keep; the search chooses those of each stage. Give "
            "them to mw.pipeline(fn, mesh, tactics) instead",
        ),
        "objective": (
            request.objective not in _SAME_ORDER,
            f"the objective {request.objective!r}; a pipeline is searched for the shortest "
            "step within `memory`. Give memory= a lower limit instead",
        ),
        "mesh": (
            request.mesh is not None,
            "a mesh; the search chooses a mesh for each stage. Give chips= instead, or the "
            "mesh with an axis 'stage' to mw.pipeline",
        ),
        "search": (
            request.search != "program",
            f"search={request.search!r}; a pipeline has a search of its own. Leave it out",
        ),
    }
    refused = [why for is_given, why in allowed.values() if is_given]
    return f"pipeline= does not take {refused[0]}" if refused else ""


def built_plan(captured: Captured, planned: PlannedPipeline) -> PipelinePlan:
    """The plan of the stages that the planner has chosen, built but not simulated."""
    staged, options, notes = _built(captured, planned)
    plan = make_plan(staged, options)
    stages = (
        replace(stage, choice=found.choice)
        for stage, found in zip(plan.stages, planned.stages, strict=True)
    )
    return replace(plan, notes=plan.notes + notes, stages=tuple(stages))


def _built(
    captured: Captured, planned: PlannedPipeline
) -> tuple[StagedStep, Options, tuple[str, ...]]:
    """The programs of a planned pipeline, its options, and notes about them.

    Sums over the batch in the middle of the step are taken over each microbatch if the
    pipeline cannot be built otherwise. Raises `StageError` if it cannot be built at all.
    """
    options = planned_options(planned)
    try:
        return stage(captured, options), options, ()
    except StageError as error:
        own = planned_options(planned, "microbatch")
        staged, why = stage(captured, own), str(error)
    note = (
        "sums over the batch in the middle of the step, such as a batch norm's, are taken "
        f"over each microbatch (statistics='microbatch'); over the whole batch: {why}"
    )
    return staged, own, (note,)


def _confirmed(plan: PipelinePlan) -> PipelinePlan:
    """The plan, if the machine's compiler accepts each task; else a `PlanError`."""
    found = plan.confirm(plan.machine.compiler)
    for name, task, figures in found.tasks:
        if not figures.compiled.fits:
            raise PlanError(
                f"the compiler needs too much memory for stage {name}, {task}; search with "
                f"confirm=False to get the plan all the same\n{found}"
            )
    assert plan.search is not None, "the plan was searched"
    return replace(plan, search=replace(plan.search, is_compiled=True))


# -- both kinds of plans ---------------------------------------------------------------


def plan_or_pipeline(
    pipeline: bool | Literal["auto"],
    fn: Callable[..., Any],
    args: Sequence[Any],
    request: SearchRequest,
    find_plan: Callable[[], Plan],
) -> Plan | PipelinePlan:
    """The pipeline plan, or with `pipeline="auto"` the faster one of both plans.

    Raises `PlanError` if "auto" does not go with the objective.
    """
    if pipeline != "auto":
        return find_pipeline(fn, args, request)
    if request.objective != "step_time":
        raise PlanError(
            f"pipeline='auto' compares step times, and the objective is "
            f"{request.objective!r}; leave out the objective, or choose pipeline=True or "
            "False"
        )
    return faster_of(find_plan, lambda: find_pipeline(fn, args, request))


def faster_of(
    find_plan: Callable[[], Plan], find_pipeline: Callable[[], PipelinePlan]
) -> Plan | PipelinePlan:
    """The plan on one mesh, or the pipeline plan if that is faster or alone fits.

    A pipeline plan of one stage is a plan on one mesh, too, and simulated less exactly. The
    candidates of the plan show the other one, or why there is none. Raises the `PlanError`
    of the plan on one mesh if there is neither.
    """
    plan, why_no_plan = _found(find_plan)
    piped, why_no_pipeline = _found(find_pipeline)
    if plan is None:
        assert why_no_plan is not None, "a search fails with an error"
        if piped is None:
            raise why_no_plan
        return _with_other(piped, f"no plan on one mesh: {why_no_plan}")
    if piped is None:
        return _with_other(plan, f"no pipeline: {why_no_pipeline}")
    if len(piped.stages) == 1:
        return _with_other(
            plan, "no pipeline: one stage is as fast as several, or faster"
        )
    other = piped if plan.step_time_s <= piped.step_time_s or not piped.fits else plan
    if other is piped:
        return _with_other(plan, "", candidate_of(piped, f"pipeline, {piped.layout}"))
    assert plan.search is not None, "autoplan records its search"
    best = plan.search.candidates[0]
    return _with_other(piped, "", replace(best, name=f"one mesh, {best.name}"))


def _found[P](find: Callable[[], P]) -> tuple[P | None, PlanError | StageError | None]:
    """The plan that a search finds, or else its error."""
    try:
        return find(), None
    except (PlanError, StageError) as error:
        return None, error


def _with_other[P: (Plan, PipelinePlan)](
    plan: P, remark: str, other: Candidate | None = None
) -> P:
    """A plan whose search also has the best plan of the other kind, or a remark on it."""
    search = plan.search
    assert search is not None, "autoplan records its search"
    if other is None:
        first, _, why = remark.partition(": ")
        name = first.removeprefix("no ")
        other = Candidate(name, search.candidates[0].mesh, (), why_not=why)
        search = replace(search, remarks=(*search.remarks, remark))
    best, *rest = search.candidates
    rest = sorted([*rest, other], key=_rank)
    return replace(plan, search=replace(search, candidates=(best, *rest)))


def _rank(candidate: Candidate) -> tuple[bool, bool, float]:
    """Plans that fit come first, by time; those that cannot be made come last."""
    return bool(candidate.why_not), not candidate.fits, candidate.step_time_s

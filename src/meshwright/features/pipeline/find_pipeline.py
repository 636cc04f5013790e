"""`autoplan` with `pipeline`: search for the pipeline plan of a step, or for both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from meshwright.app.plan import Plan
from meshwright.errors import PlanError, StageError
from meshwright.features.pipeline.batch_sizes import ResizableStep
from meshwright.features.pipeline.fastest_built import fastest_built
from meshwright.features.pipeline.plan.pipeline_plan import PipelinePlan
from meshwright.features.pipeline.planning.pipeline_planner import PipelinePlanner
from meshwright.features.pipeline.planning.pipeline_task import PipelineTask
from meshwright.features.pipeline.schedule_candidates import (
    candidate_of,
    with_candidates,
)
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.driver.request import SearchRequest
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
    plan = fastest_built(
        step.captured,
        PipelinePlanner(task),
        lambda plan: plan.on(resolved.machine, resolved.place, donate_state=True),
    )
    plan = with_candidates(plan, time.monotonic() - began_s, schedule)
    return _confirmed(plan) if request.confirm else plan


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

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
from meshwright.features.pipeline.planning.pipeline_task import BUILD, PipelineTask
from meshwright.features.pipeline.planning.planned_pipeline import PlannedPipeline
from meshwright.features.pipeline.schedule_candidates import (
    candidate_of,
    with_candidates,
)
from meshwright.features.pipeline.stages.staged_step import StagedStep
from meshwright.machine.memory_size import show_bytes
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.driver.request import SearchRequest
from meshwright.program.analysis.executions import num_iterations
from meshwright.program.capture import Captured
from meshwright.program.ir import Program
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
    plan = _fastest_built(
        step.captured,
        PipelinePlanner(task),
        lambda plan: plan.on(resolved.machine, resolved.place, donate_state=True),
    )
    plan = with_candidates(plan, time.monotonic() - began_s, schedule)
    return _confirmed(plan) if request.confirm else plan


_MOST_BUILDS = 6
"""Largest number of pipelines that are built to find the fastest one that fits."""

_LATEST = 1.5
"""Share of the budget within which a further pipeline has to be built.

Building takes 15 to 20 s for 61 to 126 layers in several stages.
"""


def _fastest_built(
    captured: Captured,
    planner: PipelinePlanner,
    on_machine: Callable[[PipelinePlan], PipelinePlan],
) -> PipelinePlan:
    """The fastest plan that fits, of the stages that were built.

    The planner prices blocks of ops, and adds them up to stages. What built stages take
    corrects the prices of their strategies, and it searches again, until no plan is
    priced faster than the best one, or the time is over.
    """
    task = planner.task
    best: PipelinePlan | None = None
    built: list[tuple[object, ...]] = []
    while len(built) < _MOST_BUILDS:
        try:
            planned = planner.best()
        except PlanError:
            if best is None:
                raise
            break
        key = _choices(planned)
        if key in built or (best and not _is_worthwhile(planned, best, planner)):
            break
        built.append(key)
        planned, plan = _buildable_plan(captured, planner, planned)
        plan = on_machine(plan)
        planner.correct(planned.stages, plan.stages)
        task.on_progress(_compared(planned, plan))
        if plan.fits and (best is None or plan.step_time_s < best.step_time_s):
            best = plan
    if best is None:
        raise PlanError(
            f"no pipeline was found that fits into {show_bytes(task.limit_bytes)} of a "
            f"device once its stages are built, of {len(built)} that were built; use more "
            "devices, or a smaller batch"
        )
    return best


def _is_worthwhile(
    planned: PlannedPipeline, best: PipelinePlan, planner: PipelinePlanner
) -> bool:
    """Whether a planned pipeline may be faster than the best, and can be built in time."""
    meter = planner.task.meter
    ends_s = meter.read() + BUILD.seconds * _num_ops(planner.step.program, planned)
    return planned.step_time_s < best.step_time_s and ends_s < _LATEST * meter.end_s


def _num_ops(program: Program, planned: PlannedPipeline) -> int:
    """The number of ops of built stages; loops over layers are written out for several."""
    is_unrolled = len(planned.stages) > 1
    return sum(
        (num_iterations(op) if is_unrolled else 1) * sum(1 for _ in body.walk())
        for op in program.ops
        for body in op.bodies
    ) + len(program.ops)


def _compared(planned: PlannedPipeline, plan: PipelinePlan) -> str:
    """A line about a pipeline as it was priced and as it is built."""
    priced_bytes = show_bytes(max(planned.simulate().peak_bytes))
    return (
        f"built: {plan.step_time_s * 1e3:,.1f} ms, {show_bytes(plan.peak_memory_bytes)}; "
        f"priced: {planned.step_time_s * 1e3:,.1f} ms, {priced_bytes}"
    )


def _choices(planned: PlannedPipeline) -> tuple[object, ...]:
    """What makes a planned pipeline's programs."""
    stages = ((stage.choice, stage.mesh) for stage in planned.stages)
    return (planned.schedule_name, planned.num_microbatches, *stages)


def _buildable_plan(
    captured: Captured, planner: PipelinePlanner, planned: PlannedPipeline
) -> tuple[PlannedPipeline, PipelinePlan]:
    """A planned pipeline and its plan, or the next best one that can be built.

    The planner prices strategies on the captured step. In the built step, each layer of a
    loop has ops and weights of its own, and tactics may find nothing to cut there: the
    planner then searches without them. If the batch cannot be divided into microbatches,
    it searches with a single one.
    """
    meter = planner.task.meter
    while True:
        planner.task.on_progress("building the stages of the best pipeline")
        meter.count(BUILD, _num_ops(planner.step.program, planned))
        try:
            return planned, built_plan(captured, planned)
        except StageTacticError as error:
            planner.leave_out(error.tactics, str(error))
        except StageError as error:
            if planned.num_microbatches == 1:
                raise PlanError(
                    f"the pipeline that the search found cannot be built: {error}"
                ) from error
            planner.task.on_progress(f"one microbatch alone: {error}")
            planner.task = replace(planner.task, microbatches=(1,))
        planned = planner.best()


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

"""`autoplan` with `pipeline`: search for the pipeline plan of a step, or for both."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from meshwright.app.plan import Plan
from meshwright.errors import PlanError
from meshwright.features.pipeline.batch_sizes import ResizableStep
from meshwright.features.pipeline.planning.pipeline_plan import PipelinePlan
from meshwright.features.pipeline.planning.pipeline_planner import PipelinePlanner
from meshwright.features.pipeline.planning.pipeline_task import PipelineTask
from meshwright.planner.driver.request import SearchRequest
from meshwright.search.work import WorkMeter


def find_pipeline(
    fn: Callable[..., Any],
    args: Sequence[Any],
    request: SearchRequest,
    schedule: str = "",
) -> PipelinePlan:
    """The fastest pipeline plan for `fn(*args)` on the machine that a search request names.

    schedule: name of the only schedule to try; "" for all, and searched ones.
    Raises `PlanError` if no pipeline fits, or if the step has no backward pass or no batch.
    """
    resolved = request.resolve()
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
    return PipelinePlanner(task).best()


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

    A pipeline plan of one stage is a plan on one mesh, too, and simulated less exactly.
    Raises the `PlanError` of the plan on one mesh if there is neither.
    """
    try:
        plan = find_plan()
    except PlanError as error:
        try:
            return find_pipeline()
        except PlanError as other:
            raise error from other
    try:
        piped = find_pipeline()
    except PlanError:
        return plan
    assert plan.step_time_s is not None, "an autoplan names a machine"
    is_faster = piped.step_time_s < plan.step_time_s
    return piped if len(piped.stages) > 1 and is_faster else plan

"""`autoplan` with `pipeline=True`: search for the pipeline plan of a step."""

from collections.abc import Callable, Sequence
from typing import Any

from meshwright.app.batch_sizes import ResizableStep
from meshwright.planner.driver.request import SearchRequest
from meshwright.planner.pipeline.pipeline_plan import PipelinePlan
from meshwright.planner.pipeline.pipeline_task import PipelineTask
from meshwright.planner.pipeline.planning import PipelinePlanner


def find_pipeline(
    fn: Callable[..., Any], args: Sequence[Any], request: SearchRequest
) -> PipelinePlan:
    """The fastest pipeline plan for `fn(*args)` on the machine that a search request names.

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
        on_progress=request.on_progress,
    )
    return PipelinePlanner(task).best()

"""`meshwright plan --pipeline`: search for a pipeline plan, and print it."""

from dataclasses import replace

from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.target import find_target
from meshwright.features.pipeline.find_pipeline import find_pipeline
from meshwright.features.pipeline.plan.pipeline_plan import PipelinePlan
from meshwright.features.pipeline.schedules.generators import require_schedule
from meshwright.planner.driver.request import SearchRequest


def pipeline_command(
    target: str, request: SearchRequest, schedule: str
) -> PipelinePlan:
    """The pipeline plan that is found for a target; a terminal shows progress on stderr.

    schedule: name of the only schedule to try; "" for all.
    """
    # Wrong options are refused before the target is built.
    request.resolve()
    if schedule:
        require_schedule(schedule)
    with show_progress(f"loading {target}"):
        found = find_target(target)
        fn, args = found.made
    with show_progress(f"planning a pipeline for {found.name}") as on_progress:
        request = replace(request, on_progress=on_progress)
        plan = find_pipeline(fn, args, request, schedule)
    return plan.named(found.name)

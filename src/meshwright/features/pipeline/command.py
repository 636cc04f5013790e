"""`meshwright plan --pipeline`: search for a pipeline plan, and print it."""

from dataclasses import replace
from pathlib import Path

from meshwright.app.output.files import write_file
from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.target import find_target
from meshwright.features.pipeline.find_pipeline import find_pipeline
from meshwright.features.pipeline.planning.pipeline_plan import PipelinePlan
from meshwright.features.pipeline.schedule_picture import schedule_page, schedule_text
from meshwright.features.pipeline.schedules.generators import require_schedule
from meshwright.planner.driver.request import SearchRequest


def pipeline_command(
    target: str,
    request: SearchRequest,
    as_json: bool,
    out: Path | None,
    schedule: str,
) -> None:
    """Search for a pipeline plan of a target; print its stages, figures and schedule.

    schedule: name of the only schedule to try; "" for all.
    out: file for the plan as JSON, or for a page with pictures if its name ends in .html.
    """
    plan = _plan_target(target, request, schedule)
    simulation = plan.simulate()
    if out is not None:
        is_page = out.suffix in (".html", ".htm")
        saved = schedule_page(str(plan), simulation) if is_page else plan.to_json()
        write_file(out, saved.encode())
    if as_json:
        print(plan.to_json())
        return
    print(plan)
    for name, result in plan.tried:
        shown = result if isinstance(result, str) else f"{result * 1e3:,.1f} ms"
        print(f"  {name}: {shown}")
    print(f"\n{schedule_text(simulation)}")


def _plan_target(text: str, request: SearchRequest, schedule: str) -> PipelinePlan:
    """The pipeline plan that is found for a target; a terminal shows progress on stderr."""
    # Wrong options are refused before the target is built.
    request.resolve()
    if schedule:
        require_schedule(schedule)
    with show_progress(f"loading {text}"):
        target = find_target(text)
        fn, args = target.made
    with show_progress(f"planning a pipeline for {target.name}") as on_progress:
        request = replace(request, on_progress=on_progress)
        plan = find_pipeline(fn, args, request, schedule)
    return replace(plan, name=target.name)

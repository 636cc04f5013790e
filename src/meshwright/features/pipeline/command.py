"""`meshwright plan --pipeline`: search for a pipeline plan, and print it."""

from dataclasses import replace
from pathlib import Path

from meshwright.app.output.files import write_file
from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.target import find_target
from meshwright.features.pipeline.find_pipeline import find_pipeline
from meshwright.features.pipeline.planning.pipeline_plan import PipelinePlan
from meshwright.features.pipeline.schedule_picture import schedule_page, schedule_text
from meshwright.planner.driver.request import SearchRequest


def pipeline_command(
    target: str, request: SearchRequest, as_json: bool, out: Path | None
) -> None:
    """Search for a pipeline plan of a target, and print it; see `print_pipeline`."""
    print_pipeline(plan_pipeline(target, request), as_json, out)


def plan_pipeline(text: str, request: SearchRequest) -> PipelinePlan:
    """The pipeline plan that is found for a target; a terminal shows progress on stderr."""
    request.resolve()  # refuses wrong options before the target is built
    with show_progress(f"loading {text}"):
        target = find_target(text)
        fn, args = target.made
    with show_progress(f"planning a pipeline for {target.name}") as on_progress:
        found = find_pipeline(fn, args, replace(request, on_progress=on_progress))
    return replace(found, name=target.name)


def print_pipeline(plan: PipelinePlan, as_json: bool, out: Path | None) -> None:
    """Print the stages, figures and schedule of a pipeline plan.

    out: file for the plan as JSON, or for a page with pictures if its name ends in .html.
    """
    found = plan.simulate()
    if out is not None:
        is_page = out.suffix in (".html", ".htm")
        saved = schedule_page(str(plan), found) if is_page else plan.to_json()
        write_file(out, saved.encode())
    if as_json:
        print(plan.to_json())
        return
    print(plan)
    for name, result in plan.tried:
        shown = result if isinstance(result, str) else f"{result * 1e3:,.1f} ms"
        print(f"  {name}: {shown}")
    print(f"\n{schedule_text(found)}")

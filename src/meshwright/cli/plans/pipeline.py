"""`meshwright plan --pipeline`: the plan of stages, and what it prints."""

from dataclasses import replace
from pathlib import Path

from meshwright.app.output.files import write_file
from meshwright.app.output.progress import show_progress
from meshwright.app.pipeline_planning import find_pipeline
from meshwright.app.report.schedule_picture import schedule_page, schedule_text
from meshwright.cli.arguments.target import find_target
from meshwright.planner.driver.request import SearchRequest
from meshwright.planner.pipeline.pipeline_plan import PipelinePlan


def plan_pipeline(text: str, request: SearchRequest) -> PipelinePlan:
    """The pipeline plan of a target, with progress on stderr if it is a terminal."""
    request.resolve()  # refuses wrong options before the target is built
    with show_progress(f"loading {text}"):
        target = find_target(text)
        fn, args = target.made
    with show_progress(f"planning a pipeline for {target.name}") as on_progress:
        found = find_pipeline(fn, args, replace(request, on_progress=on_progress))
    return replace(found, name=target.name)


def print_pipeline(plan: PipelinePlan, as_json: bool, out: Path | None) -> None:
    """Print stages, figures and the schedule; save JSON, or a page if `out` is HTML."""
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

"""`meshwright plan --machine M --chips N`: search for a plan, and print what was found."""

import json
from dataclasses import replace
from pathlib import Path
from textwrap import indent

from meshwright.app.autoplan import find_plan
from meshwright.app.explain.candidates import won_text
from meshwright.app.explain.overview import undivided_lines
from meshwright.app.output.files import write_file
from meshwright.app.output.progress import show_progress
from meshwright.app.plan import Plan
from meshwright.app.planned_step import PlannedStep
from meshwright.cli.arguments.options import make_console
from meshwright.cli.arguments.schedule import choose_tactics
from meshwright.cli.arguments.target import find_target
from meshwright.machine.memory_size import show_bytes
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.search_result import SearchResult, Spelling
from meshwright.planner.driver.request import SearchRequest

_LINES = 24
"""Number of lines of the tactics that are shown."""


def search_plan(
    text: str, request: SearchRequest, schedule: str | None, tactics: str | None
) -> Plan:
    """The best plan that is found for a target; a terminal shows progress on stderr.

    schedule, tactics: decisions that the search keeps. Without them it decides everything.
    """
    request.resolve()  # refuses wrong options before the target is built, which may be slow
    with show_progress(f"loading {text}"):
        target = find_target(text)
        if schedule is not None or tactics is not None:
            request = replace(
                request, tactics=choose_tactics(target, schedule, tactics)
            )
            request.resolve()
        fn, args = target.made
    with show_progress(f"searching a plan for {target.name}") as on_progress:
        request = replace(request, on_progress=on_progress)
        return find_plan(fn, args, request).named(target.name)


def found_json(plan: PlannedStep) -> str:
    """JSON text of a plan that a search found, with an entry about the search."""
    assert plan.search is not None, "autoplan records its search"
    fields = json.loads(plan.to_json()) | {"search": plan.search.to_json()}
    return json.dumps(fields, indent=1)


def save_plan(
    plan: PlannedStep, text: str, out: Path | None, trace: Path | None
) -> None:
    """Save a plan's JSON text, or a page about it, and trace events of its step.

    out: file for the text; a file whose name ends in .html gets the page.
    """
    if out is not None and out.suffix in (".html", ".htm"):
        plan.report(out)
    elif out is not None:
        write_file(out, text.encode())
    if trace is not None:
        plan.trace(trace)


def print_found(plan: PlannedStep, full: bool) -> None:
    """Print the table of compared plans and the best plan."""
    assert plan.search is not None, "autoplan records its search"
    print("\n".join([*undivided_lines(plan), won_text(plan.search)]) + "\n")
    make_console().print(plan.candidates)
    print(f"\n{search_text(plan.search)}\n")
    if plan.search.spelled is not None:
        print(f"{spelled_text(plan.search.spelled, plan.search.candidates[0])}\n")
    print(plan.describe(full))
    print(f"\n{code_lines(plan.code)}")


def code_lines(code: str) -> str:
    """The first lines of the code that rebuilds a plan by tactics, below a title."""
    lines = code.splitlines()
    title = "code that rebuilds this plan"
    if len(lines) > _LINES:
        title += f" (the first {_LINES} of {len(lines)} lines; --json has all as code)"
    return "\n".join([title, *(f"  {line}" for line in lines[:_LINES])])


def spelled_text(spelled: Spelling, best: Candidate) -> str:
    """The tactics that come closest to the integer program's plan, and their figures."""
    ratio = spelled.step_time_s / best.step_time_s
    memory = show_bytes(spelled.peak_memory_bytes)
    figures = f"{ratio:.2f} times the step time of the first plan, {memory}"
    if not spelled.text:
        return f"as tactics ({figures}): none; nothing is partitioned"
    return f"as tactics ({figures}):\n{indent(spelled.text, '  ')}"


def search_text(search: SearchResult) -> str:
    """The time of a search, its lower bound, and the number of meshes that it left out."""
    seen, total = search.num_meshes, search.all_meshes
    meshes = f"{seen}" if seen == total else f"{seen} of {total}"
    lines = [f"{search.seconds:.1f} s for {meshes} mesh{'es' * (total > 1)}"]
    if search.method == "pipeline":
        lines = [f"{search.seconds:.1f} s for stages, submeshes, tactics and schedule"]
    if search.method == "tree":
        lines.append(f"tree search, which priced {search.num_states:,} states")
    if search.model_s and search.candidates[0].name == "auto":
        lines.append(
            f"by the cost model of the integer program, none of the {search.bounded} is "
            f"more than {100 * search.gap:.1f} % faster"
        )
    text = "; ".join(lines)
    if search.is_interrupted:
        text += "\ninterrupted: this is the best so far"
    elif seen < total:
        text += "\nno time was left for the other meshes: try a larger --budget"
    return "\n".join([text, *search.notes])

"""`meshwright plan --machine M --chips N`: the search for a plan, and what it prints."""

import json
import re
from dataclasses import replace
from pathlib import Path
from textwrap import indent, shorten

from rich.table import Table

from meshwright.app import Plan
from meshwright.app.autoplan import find_plan
from meshwright.app.output.files import write_file
from meshwright.app.output.numbers import show_gib, show_seconds
from meshwright.app.output.progress import show_progress
from meshwright.cli.options import make_console, make_table
from meshwright.cli.schedule import choose_tactics
from meshwright.cli.target import load_target
from meshwright.planner.candidates.candidate import Candidate, differences
from meshwright.planner.candidates.search_result import SearchResult, Spelling
from meshwright.planner.driver.request import SearchRequest
from meshwright.predict.simulate.timeline import COMPUTE

_REASON = 76
"""Letters of the reason why a plan is not possible."""

_MOST, _WORTH = 3, 0.1
"""Number of differences shown, and the share of the largest that each has to reach."""


def search_plan(
    text: str, request: SearchRequest, schedule: str | None, tactics: str | None
) -> Plan:
    """The best plan found for a target, with progress on stderr if it is a terminal.

    schedule, tactics: decisions that are kept; if neither is given, everything is searched.
    """
    request.resolve()  # refuses wrong options before the target is built, which may be slow
    with show_progress(f"loading {text}"):
        target = load_target(text)
    if schedule is not None or tactics is not None:
        request = replace(request, tactics=choose_tactics(target, schedule, tactics))
    with show_progress(f"searching a plan for {target.name}") as on_progress:
        request = replace(request, on_progress=on_progress)
        return find_plan(target.fn, target.args, request)


def print_found(plan: Plan, as_json: bool, out: Path | None) -> None:
    """Print the table of candidates and the plan, or JSON; save JSON in `out`."""
    assert plan.search is not None, "autoplan records its search"
    if out is not None or as_json:
        fields = json.loads(plan.to_json()) | {"search": plan.search.to_json()}
        text = json.dumps(fields, indent=1)
        if out is not None:
            write_file(out, text.encode())
        if as_json:
            print(text)
            return
    make_console().print(search_table(plan.search))
    print(f"\n{search_text(plan.search)}\n")
    if plan.search.spelled is not None:
        print(f"{spelled_text(plan.search.spelled, plan.search.candidates[0])}\n")
    print(plan)


def search_table(search: SearchResult) -> Table:
    """A row for each simulated plan, the best first, compared with the best."""
    table = make_table(
        "plan", "mesh", ">step", ">times", ">memory", "compared with the first"
    )
    best = search.candidates[0]
    for candidate in search.candidates:
        table.add_row(*_cells(candidate, best, search.limit_bytes))
    return table


def _cells(candidate: Candidate, best: Candidate, limit: float) -> tuple[str, ...]:
    mesh = str(candidate.mesh)
    if candidate.why_not:
        first = re.split(r"[:;] ", candidate.why_not)[0]
        reason = shorten(first, _REASON, placeholder=" ...")
        return candidate.name, mesh, "-", "-", "-", reason
    seconds, ratio = candidate.step_time_s, candidate.step_time_s / best.step_time_s
    return (
        candidate.name,
        mesh,
        f"{seconds * 1e3:.2f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.2f} µs",
        f"{ratio:.2f}",
        show_gib(candidate.peak_memory_bytes),
        _difference(candidate, best, limit),
    )


def _difference(candidate: Candidate, best: Candidate, limit: float) -> str:
    """The memory that a plan lacks, or the largest differences of its step's seconds."""
    num_bytes = candidate.peak_memory_bytes
    if not candidate.fits(limit):
        over, allowed = show_gib(num_bytes - limit), show_gib(limit)
        return f"does not fit: {over} more than {allowed}"
    found = differences(candidate, best)
    worth = [(w, s) for w, s in found if s and abs(s) >= _WORTH * abs(found[0][1])]
    parts = [_signed(show_seconds(abs(s)), s, _word(w)) for w, s in worth[:_MOST]]
    is_slower = candidate.step_time_s > best.step_time_s
    if not is_slower and num_bytes != best.peak_memory_bytes:
        more = num_bytes - best.peak_memory_bytes
        parts.insert(0, _signed(show_gib(abs(more)), more, "memory"))
    return ", ".join(parts)


def _signed(amount: str, sign: float, word: str) -> str:
    return f"{'+' if sign > 0 else '-'}{amount} {word}"


def _word(name: str) -> str:
    """`all-reduce` for the entry "all_reduce exposed" of a breakdown."""
    if name == COMPUTE:
        return "computing"
    return name.removesuffix(" exposed").replace("_", "-")


def spelled_text(spelled: Spelling, best: Candidate) -> str:
    """The plan of the integer program as ordinary tactics, with their simulated figures."""
    ratio = spelled.step_time_s / best.step_time_s
    memory = show_gib(spelled.peak_memory_bytes)
    figures = f"{ratio:.2f} times the step time of the first plan, {memory}"
    if not spelled.text:
        return f"as tactics ({figures}): none; nothing is partitioned"
    return f"as tactics ({figures}):\n{indent(spelled.text, '  ')}"


def search_text(search: SearchResult) -> str:
    """The duration of a search, its lower bound, and the meshes that it left out."""
    seen, known = search.num_meshes, search.all_meshes
    meshes = f"{seen}" if seen == known else f"{seen} of {known}"
    lines = [f"{search.seconds:.1f} s for {meshes} mesh{'es' * (known > 1)}"]
    if search.method == "tree":
        lines.append(f"tree search, which priced {search.num_states:,} states")
    if search.model_s and search.candidates[0].name == "auto":
        lines.append(
            f"by the cost model of the integer program, no plan on this mesh is more "
            f"than {100 * search.gap:.1f} % faster"
        )
    text = "; ".join(lines)
    if search.is_interrupted:
        text += "\ninterrupted: this is the best so far"
    elif seen < known:
        text += "\nno time was left for the other meshes: try a larger --budget"
    return "\n".join([text, *search.notes])

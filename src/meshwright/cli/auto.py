"""`meshwright plan --machine M --chips N`: the search, and what it says at the end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent, shorten

import typer
from rich.console import Console
from rich.table import Table

from meshwright.app import Plan, autoplan
from meshwright.app.output.files import write_file
from meshwright.app.output.numbers import show_seconds
from meshwright.app.output.progress import show_progress
from meshwright.cli.options import make_console
from meshwright.cli.schedule import choose_tactics
from meshwright.cli.target import load_target
from meshwright.errors import PlanError, TargetError
from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.candidates.candidate import (
    Candidate,
    Search,
    Spelling,
    differences,
)
from meshwright.planner.driver.request import Asked
from meshwright.predict.simulate.timeline import COMPUTE

_WIDE = 76
"""Letters of the reason why a plan cannot be."""

_SEARCHES = ("chips", "objective", "memory", "budget", "most_axes", "seed")
"""Options that only a search has."""

_MOST, _WORTH = 3, 0.1
"""Differences that are told, and of the largest the share that one has to have."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a search; see `mw.autoplan`. memory_gib: of a device.

    schedule, tactics: what stands, as the options say it; without either nothing does.
    """

    machine: str
    chips: int | None
    objective: str
    memory_gib: float | None
    budget_s: float
    mesh: Mesh | None
    most_axes: int
    schedule: str | None
    tactics: str | None
    place: str | None
    seed: int

    def check(self) -> None:
        """What is wrong with it is said before a target is built, which may take long."""
        if self.chips is None and self.mesh is None:
            raise TargetError("how many chips? say --chips 32, or so, or name a --mesh")
        memory = self.memory_gib
        if memory is not None and not memory > 0:
            raise PlanError(f"--memory is {memory}; wanted GiB of a device, above 0")
        Asked(
            self.machine, self.chips, self.mesh, self.most_axes, self.objective,
            memory, self.budget_s, self.place,
        ).settled()  # fmt: skip


def check_searches(context: typer.Context, *, is_search: bool) -> None:
    """Refuse options of a search where there is none, and what a search decides."""
    given = [
        name
        for name in (("gather",) if is_search else _SEARCHES)
        if _is_given(context, name)
    ]
    if not given:
        return
    option = f"--{given[0].replace('_', '-')}"
    if is_search:
        raise TargetError(f"{option} is for --mesh without --machine; a search decides")
    raise TargetError(
        f"{option} is for a search, with --machine, such as --machine tpu-v5e --chips 8"
    )


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was typed, be it with the value that it has by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def find_plan(text: str, wanted: Wanted) -> Plan:
    """The best plan for a target, with progress on stderr while somebody watches."""
    wanted.check()
    with show_progress(f"loading {text}"):
        target = load_target(text)
    memory = wanted.memory_gib
    given: tuple[Tactic, ...] = ()
    if wanted.schedule is not None or wanted.tactics is not None:
        given = choose_tactics(target, wanted.schedule, wanted.tactics)
    with _watching(f"searching a plan for {target.name}") as say:
        return autoplan(
            target.fn,
            target.args,
            machine=wanted.machine,
            chips=wanted.chips,
            mesh=wanted.mesh,
            most_axes=wanted.most_axes,
            tactics=given,
            objective=wanted.objective,
            memory=None if memory is None else memory * 2**30,
            budget_s=wanted.budget_s,
            place=wanted.place,
            seed=wanted.seed,
            on_progress=say,
        )


def show_found(plan: Plan, as_json: bool, out: Path | None) -> None:
    """Print what was found: the table, then the plan; as JSON for programs."""
    assert plan.search is not None, "it was searched"
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


@contextmanager
def _watching(what: str) -> Generator[Callable[[str], None]]:
    """A line on stderr that says what was found last; nothing where nobody watches."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(f"{what} ...") as status:
        yield lambda text: status.update(f"{what}: {text}")


def search_table(search: Search) -> Table:
    """The plans that were simulated, the best first; how each compares with it."""
    table = Table(box=None, pad_edge=False)
    for name in ("plan", "mesh"):
        table.add_column(name)
    for name in ("step", "times", "a device"):
        table.add_column(name, justify="right")
    table.add_column("beside the first")
    best = search.candidates[0]
    for candidate in search.candidates:
        table.add_row(*_cells(candidate, best, search.limit_bytes))
    return table


def _cells(candidate: Candidate, best: Candidate, limit: float) -> tuple[str, ...]:
    mesh = str(candidate.mesh)
    if candidate.why_not:
        first = re.split(r"[:;] ", candidate.why_not)[0]
        told = shorten(first, _WIDE, placeholder=" ...")
        return candidate.name, mesh, "-", "-", "-", told
    seconds, ratio = candidate.step_time_s, candidate.step_time_s / best.step_time_s
    return (
        candidate.name,
        mesh,
        f"{seconds * 1e3:.2f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.2f} µs",
        f"{ratio:.2f}",
        show_gib(candidate.peak_memory_bytes),
        _beside(candidate, best, limit),
    )


def _beside(candidate: Candidate, best: Candidate, limit: float) -> str:
    """In a few words why a plan is not the best: what is too large, or takes longer."""
    num_bytes = candidate.peak_memory_bytes
    if not candidate.fits(limit):
        over, allowed = show_gib(num_bytes - limit), show_gib(limit)
        return f"does not fit: {over} more than {allowed}"
    found = differences(candidate, best)
    worth = [(w, s) for w, s in found if s and abs(s) >= _WORTH * abs(found[0][1])]
    told = [_signed(show_seconds(abs(s)), s, _word(w)) for w, s in worth[:_MOST]]
    is_slower = candidate.step_time_s > best.step_time_s
    if not is_slower and num_bytes != best.peak_memory_bytes:
        more = num_bytes - best.peak_memory_bytes
        told.insert(0, _signed(show_gib(abs(more)), more, "memory"))
    return ", ".join(told)


def _signed(amount: str, sign: float, word: str) -> str:
    return f"{'+' if sign > 0 else '-'}{amount} {word}"


def _word(name: str) -> str:
    """`all-reduce` for what a breakdown calls "all_reduce exposed"."""
    if name == COMPUTE:
        return "computing"
    return name.removesuffix(" exposed").replace("_", "-")


def show_gib(num_bytes: float) -> str:
    """`3.2 GiB`, in MiB or KiB where it is less than one."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB")):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes / 2**10:.1f} KiB"


def spelled_text(spelled: Spelling, best: Candidate) -> str:
    """The found plan as ordinary tactics, and what these come to beside it."""
    ratio = spelled.step_time_s / best.step_time_s
    memory = show_gib(spelled.peak_memory_bytes)
    beside = f"{ratio:.2f} times the step of the first, {memory}"
    if not spelled.text:
        return f"as tactics ({beside}): none; nothing is to be cut"
    return f"as tactics ({beside}):\n{indent(spelled.text, '  ')}"


def search_text(search: Search) -> str:
    """How long it took, what it did not come to, and how far from the best it can be."""
    seen, known = search.num_meshes, search.all_meshes
    looked = f"{seen}" if seen == known else f"{seen} of {known}"
    lines = [f"{search.seconds:.1f} s for {looked} mesh{'es' * (known > 1)}"]
    if search.model_s and search.candidates[0].name == "auto":
        lines.append(
            f"by the prices of the integer program, no plan on this mesh is more than "
            f"{100 * search.gap:.1f} % faster"
        )
    text = "; ".join(lines)
    if search.is_interrupted:
        return f"{text}\ninterrupted: this is the best so far"
    if seen < known:
        return f"{text}\nno time was left for the other meshes: try a larger --budget"
    return text

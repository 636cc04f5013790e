"""`meshwright plan --machine M --chips N`: the search for a plan, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from meshwright.app import Plan, autoplan
from meshwright.app.output.files import write_file
from meshwright.app.output.progress import show_progress
from meshwright.cli.options import make_console
from meshwright.cli.schedule import choose_tactics
from meshwright.cli.search_table import search_table, search_text, spelled_text
from meshwright.cli.target import load_target
from meshwright.errors import PlanError, TargetError
from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.driver.request import SearchRequest


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The options of a search; `mw.autoplan` says what each means.

    memory_gib: of a device. schedule, tactics: decisions that are kept, as in the options
    of these names; if neither is given, everything is searched.
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
    search: str
    seed: int

    def check(self) -> None:
        """Raise for a wrong option, before a target is built, which may take long."""
        if self.chips is None and self.mesh is None:
            raise TargetError("how many chips? say --chips 32, or so, or name a --mesh")
        memory = self.memory_gib
        if memory is not None and not memory > 0:
            raise PlanError(f"--memory is {memory}; wanted GiB of a device, above 0")
        SearchRequest(
            self.machine, self.chips, self.mesh, self.most_axes, self.objective,
            memory, self.budget_s, self.place, search=self.search,
        ).resolve()  # fmt: skip


def find_plan(text: str, options: SearchOptions) -> Plan:
    """The best plan found for a target, with progress on stderr if it is a terminal."""
    options.check()
    with show_progress(f"loading {text}"):
        target = load_target(text)
    memory = options.memory_gib
    given: tuple[Tactic, ...] = ()
    if options.schedule is not None or options.tactics is not None:
        given = choose_tactics(target, options.schedule, options.tactics)
    with _status(f"searching a plan for {target.name}") as on_progress:
        return autoplan(
            target.fn,
            target.args,
            machine=options.machine,
            chips=options.chips,
            mesh=options.mesh,
            most_axes=options.most_axes,
            tactics=given,
            objective=options.objective,
            memory=None if memory is None else memory * 2**30,
            budget_s=options.budget_s,
            place=options.place,
            search=options.search,
            seed=options.seed,
            on_progress=on_progress,
        )


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


@contextmanager
def _status(what: str) -> Generator[Callable[[str], None]]:
    """A line on stderr with the latest progress; nothing if stderr is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(f"{what} ...") as status:
        yield lambda text: status.update(f"{what}: {text}")

"""`meshwright plan --machine M --chips N`: the search, and what it says at the end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from meshwright.autoplan import autoplan
from meshwright.cli.options import make_console, save_text
from meshwright.cli.target import Target
from meshwright.errors import PlanError, TargetError
from meshwright.machine import Mesh
from meshwright.plan import Plan
from meshwright.plan.candidates import Candidate, Search


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a search; see `mw.autoplan`. memory_gib: of a device."""

    machine: str
    chips: int | None
    objective: str
    memory_gib: float | None
    budget_s: float
    mesh: Mesh | None
    place: str | None


def find_plan(target: Target, wanted: Wanted) -> Plan:
    """The best plan for a target, with progress on stderr while somebody watches."""
    if wanted.chips is None and wanted.mesh is None:
        raise TargetError("how many chips? say --chips 32, or so, or name a --mesh")
    memory = wanted.memory_gib
    if memory is not None and not memory > 0:
        raise PlanError(f"--memory is {memory}; wanted GiB of a device, above 0")
    with _watching(f"searching a plan for {target.name}") as say:
        return autoplan(
            target.fn,
            target.args,
            machine=wanted.machine,
            chips=wanted.chips,
            mesh=wanted.mesh,
            objective=wanted.objective,
            memory=None if memory is None else memory * 2**30,
            budget_s=wanted.budget_s,
            place=wanted.place,
            on_progress=say,
        )


def show_found(plan: Plan, as_json: bool, out: Path | None) -> None:
    """Print what was found: the table, then the plan; as JSON for programs."""
    assert plan.search is not None, "it was searched"
    if out is not None:
        save_text(out, plan.to_json())
    if as_json:
        print(plan.to_json())
        return
    make_console().print(search_table(plan.search))
    print(f"\n{search_text(plan.search)}\n")
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
    for name in ("step", "times", "GiB a device"):
        table.add_column(name, justify="right")
    table.add_column("")
    best = search.candidates[0]
    for candidate in search.candidates:
        table.add_row(*_cells(candidate, best, search.limit_bytes))
    return table


def _cells(candidate: Candidate, best: Candidate, limit: float) -> tuple[str, ...]:
    mesh = str(candidate.mesh)
    if candidate.why_not:
        return candidate.name, mesh, "-", "-", "-", candidate.why_not.partition(":")[0]
    seconds, ratio = candidate.step_time_s, candidate.step_time_s / best.step_time_s
    memory = f"{candidate.peak_memory_bytes / 2**30:.1f}"
    said = "" if candidate.fits(limit) else f"does not fit into {limit / 2**30:.1f} GiB"
    return candidate.name, mesh, f"{seconds * 1e3:.2f} ms", f"{ratio:.2f}", memory, said


def search_text(search: Search) -> str:
    """How long it took, and how far from the best it can be."""
    lines = [f"{search.seconds:.1f} s for {search.num_meshes} meshes"]
    if search.model_s and search.candidates[0].name == "auto":
        lines.append(
            f"by the prices of the integer program, no plan on this mesh is more than "
            f"{100 * search.gap:.1f} % faster"
        )
    return "; ".join(lines)

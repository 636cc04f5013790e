"""`meshwright plan`: the plan of given tactics, or the best plan that a search finds."""

from __future__ import annotations

from pathlib import Path

import typer

from meshwright.app.output.files import output_file, write_file
from meshwright.cli.comparison import find_machines, find_run_length, print_comparison
from meshwright.cli.options import (
    AsJson,
    BudgetSeconds,
    Chips,
    GatherText,
    Machines,
    MemoryGib,
    MostAxes,
    ObjectiveText,
    OptionalMesh,
    OutFile,
    PlaceName,
    Samples,
    Schedule,
    SearchMachine,
    SearchName,
    SearchSeed,
    StepOptions,
    Tactics,
    TargetText,
    Tokens,
    load_step,
    plan_target,
)
from meshwright.cli.search import SearchOptions, find_plan, print_found
from meshwright.errors import TargetError
from meshwright.machine import Mesh, parse_mesh
from meshwright.partitioner.lower import Gather
from meshwright.predict.energy import find_location

_OF_A_SEARCH = (
    "chips", "objective", "memory", "budget", "most_axes", "search", "seed"
)  # fmt: skip
"""Options that only a search has."""


def plan_command(  # noqa: PLR0913  the options of a command
    context: typer.Context,
    target: TargetText,
    mesh: OptionalMesh = None,
    schedule: Schedule = None,
    tactics: Tactics = None,
    gather: GatherText = Gather.SHARED,
    as_json: AsJson = False,
    out: OutFile = None,
    machine: SearchMachine = None,
    chips: Chips = None,
    objective: ObjectiveText = "step_time",
    memory: MemoryGib = None,
    budget: BudgetSeconds = 15.0,
    most_axes: MostAxes = 2,
    search: SearchName = "program",
    seed: SearchSeed = 0,
    machines: Machines = None,
    place: PlaceName = None,
    tokens: Tokens = None,
    samples: Samples = None,
) -> None:
    """Print shardings and collectives, tactic by tactic. Needs no devices.

    With --machine and --chips: the best plan that a search finds, compared with the usual
    strategies; --tactics or --schedule are kept, and the rest is searched. With --machines:
    the figures of a step on each of them, and with --tokens or --samples those of the whole
    run. Inputs that the step returns in updated form are treated as donated.
    """
    _refuse_misplaced(context)
    if out is not None:
        output_file(out)  # checked before the work, which would be lost
    if machine is not None:
        options = SearchOptions(
            machine, chips, objective, memory, budget, _parsed(mesh), most_axes,
            schedule, tactics, place, search, seed,
        )  # fmt: skip
        print_found(find_plan(target, options), as_json, out)
    elif mesh is None:
        raise TargetError("which mesh? --mesh data=8,model=4, or --machine and --chips")
    else:
        step = StepOptions(target, mesh, schedule, tactics, gather)
        if machines is None:
            _plan(step, as_json, out)
        else:
            _compare(step, machines, place, (tokens, samples), as_json, out)


def _parsed(mesh: str | None) -> Mesh | None:
    return None if mesh is None else parse_mesh(mesh)


def _plan(options: StepOptions, as_json: bool, out: Path | None) -> None:
    """Print the plan of given tactics."""
    plan = plan_target(*load_step(options))
    if out is not None:
        write_file(out, plan.to_json().encode())
    print(plan.to_json() if as_json else plan)


def _compare(
    options: StepOptions,
    machines: str,
    place: str | None,
    tokens_samples: tuple[float | None, float | None],
    as_json: bool,
    out: Path | None,
) -> None:
    """Print the plan of given tactics on several machines."""
    chosen = find_machines(machines, parse_mesh(options.mesh).num_devices)
    where = None if place is None else find_location(place)
    loaded, step = load_step(options)
    plan = plan_target(loaded, step)
    run = find_run_length(plan, *tokens_samples)
    plans = [plan.on(machine, where, donate_state=True) for machine in chosen]
    if out is not None:
        write_file(out, plans[0].to_json().encode())
    print_comparison(f"{loaded.name} on {step.mesh}", plans, run, as_json)


def _refuse_misplaced(context: typer.Context) -> None:
    """Refuse options that have no effect without others that are missing."""
    values = context.params
    is_search, is_comparison = values["machine"] is not None, values["machines"]
    comparing = ("tokens", "samples") if is_search else ("tokens", "samples", "place")
    misplaced = [name for name in comparing if values[name] is not None]
    if misplaced and is_comparison is None:
        raise TargetError(
            f"--{misplaced[0]} needs machines to compare: add --machines, such as "
            "--machines tpu-v5e,h100"
        )
    others = ("gather",) if is_search else _OF_A_SEARCH
    misplaced = [name for name in others if _is_given(context, name)]
    if misplaced:
        option = f"--{misplaced[0].replace('_', '-')}"
        raise TargetError(
            f"{option} is for --mesh without --machine; a search decides"
            if is_search
            else f"{option} is for a search, with --machine, such as --machine tpu-v5e "
            "--chips 8"
        )
    if is_search and is_comparison is not None:
        raise TargetError("--machine searches, --machines compares; give one of them")


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was typed, be it with the value that it has by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"

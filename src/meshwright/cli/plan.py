"""`meshwright plan`: the plan of given tactics, or the best plan that a search finds."""

from collections.abc import Mapping
from typing import Any

import typer

import meshwright.cli.options as options
from meshwright.app.output.files import output_file, write_file
from meshwright.cli.comparison import find_machines, find_run_length, print_comparison
from meshwright.cli.search import print_found, search_plan
from meshwright.errors import PlanError, TargetError
from meshwright.machine import parse_mesh
from meshwright.partitioner.lower import Gather
from meshwright.planner.driver.request import SearchRequest
from meshwright.predict.energy import find_location

_OF_A_SEARCH = (
    "chips", "objective", "memory", "budget", "most_axes", "search", "seed", "confirm"
)  # fmt: skip
"""Options that only a search has."""


def plan_command(  # noqa: PLR0913  the options of a command
    context: typer.Context,
    target: options.TargetText,
    mesh: options.OptionalMesh = None,
    schedule: options.Schedule = None,
    tactics: options.Tactics = None,
    gather: options.GatherText = Gather.SHARED,
    as_json: options.AsJson = False,
    out: options.OutFile = None,
    machine: options.SearchMachine = None,
    chips: options.Chips = None,
    objective: options.ObjectiveText = "step_time",
    memory: options.MemoryGib = None,
    budget: options.BudgetSeconds = 15.0,
    most_axes: options.MostAxes = 2,
    search: options.SearchName = "program",
    seed: options.SearchSeed = 0,
    confirm: options.ConfirmFound = False,
    machines: options.Machines = None,
    place: options.PlaceName = None,
    tokens: options.Tokens = None,
    samples: options.Samples = None,
    tokens_per_step: options.TokensPerStep = None,
) -> None:
    """Print shardings and collectives, tactic by tactic. Needs no devices.

    With --machine and --chips: the best plan that a search finds, compared with the usual
    strategies; --tactics or --schedule are kept, and the rest is searched. With --machines:
    the figures of a step on each of them, and with --tokens or --samples those of the whole
    run. Inputs that the step returns in updated form are treated as donated.
    """
    _check_options(context)
    if machine is not None:
        request = _search_request(context.params)
        print_found(search_plan(target, request, schedule, tactics), as_json, out)
        return
    assert mesh is not None, "checked with the other options"
    num_devices = parse_mesh(mesh).num_devices
    chosen = [] if machines is None else find_machines(machines, num_devices)
    loaded, step = options.load_step(target, mesh, schedule, tactics, gather)
    plan = options.plan_target(loaded, step)
    plan = plan if tokens_per_step is None else plan.with_tokens(tokens_per_step)
    run = find_run_length(plan, tokens, samples)
    plans = [plan.on(each, place, donate_state=True) for each in chosen]
    if out is not None:
        write_file(out, (plans or [plan])[0].to_json().encode())
    if plans:
        print_comparison(f"{loaded.name} on {step.mesh}", plans, run, as_json)
    else:
        print(plan.to_json() if as_json else plan)


def _search_request(values: Mapping[str, Any]) -> SearchRequest:
    """The options of a search, from those of the command."""
    mesh, memory = values["mesh"], values["memory"]
    return SearchRequest(
        values["machine"],
        mesh=None if mesh is None else parse_mesh(mesh),
        memory=memory and memory * 2**30,
        budget_s=values["budget"],
        **{
            name: values[name]
            for name in (
                "chips", "most_axes", "objective", "place", "search", "seed", "confirm"
            )
        },
    )  # fmt: skip


def _check_options(context: typer.Context) -> None:
    """Refuse wrong options, and those without effect, before the work begins."""
    values = context.params
    is_search, is_comparison = values["machine"] is not None, values["machines"]
    comparing = ("tokens", "samples", "tokens_per_step", "place")[
        : 3 if is_search else 4
    ]
    misplaced = [name for name in comparing if values[name] is not None]
    if misplaced and is_comparison is None:
        option = f"--{misplaced[0].replace('_', '-')}"
        raise TargetError(
            f"{option} needs machines to compare: add --machines, such as "
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
    if is_search and values["chips"] is None and values["mesh"] is None:
        raise TargetError("how many chips? say --chips 32, or so, or name a --mesh")
    if not is_search and values["mesh"] is None:
        raise TargetError("which mesh? --mesh data=8,model=4, or --machine and --chips")
    memory = values["memory"]
    if memory is not None and not memory > 0:
        raise PlanError(f"--memory is {memory}; wanted GiB of a device, above 0")
    if values["place"] is not None:
        find_location(values["place"])
    if values["out"] is not None:
        output_file(values["out"])


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was typed, be it with the value that it has by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"

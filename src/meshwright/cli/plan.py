"""`meshwright plan`: the plan of given tactics, or the best plan that a search finds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

import meshwright.cli.arguments.options as options
from meshwright.app.output.files import output_file, write_file
from meshwright.app.output.progress import show_progress
from meshwright.app.plan import Plan
from meshwright.app.planned_step import PlannedStep
from meshwright.cli.plans.comparison import (
    find_machines,
    find_run_length,
    print_comparison,
)
from meshwright.cli.plans.searched_plan import (
    found_json,
    print_found,
    save_plan,
    search_plan,
)
from meshwright.errors import TargetError
from meshwright.machine import load_machine, parse_mesh
from meshwright.partitioner.lower import Gather
from meshwright.planner.driver.request import SearchRequest
from meshwright.predict.energy import find_location
from meshwright.registry import feature

_OF_A_SEARCH = (
    "chips", "objective", "memory", "budget", "most_axes", "seed", "confirm"
)  # fmt: skip
"""Options that only a search uses, besides `--search` itself."""

_OF_A_MACHINE = ("tokens", "samples", "tokens_per_step", "place", "offsets")
"""Options that have no effect without `--machine`."""

_NOT_OF_A_PIPELINE = (
    "mesh", "tactics", "search", "objective", "most_axes", "offsets", "loop",
)  # fmt: skip
"""Options that `--pipeline` does not take."""


def plan_command(  # noqa: PLR0913  the options of a command
    context: typer.Context,
    target: options.TargetText,
    mesh: options.OptionalMesh = None,
    schedule: options.Schedule = None,
    tactics: options.Tactics = None,
    gather: options.GatherText = Gather.SHARED,
    loop: options.Loops = None,
    as_json: options.AsJson = False,
    full: options.Full = False,
    out: options.OutFile = None,
    trace: options.TraceFile = None,
    offsets: options.OffsetsFile = None,
    machine: options.MachineNames = None,
    chips: options.Chips = None,
    search: options.SearchName = None,
    objective: options.ObjectiveText = "step_time",
    memory: options.Memory = None,
    budget: options.BudgetSeconds = 15.0,
    most_axes: options.MostAxes = 2,
    seed: options.SearchSeed = 0,
    confirm: options.ConfirmFound = False,
    place: options.PlaceName = None,
    tokens: options.Tokens = None,
    samples: options.Samples = None,
    tokens_per_step: options.TokensPerStep = None,
    pipeline: options.Pipeline = False,
) -> None:
    """Print shardings and collectives, tactic by tactic. Needs no devices.

    With --machine: the time and the memory of a step there, too; several machines are
    compared, and with --tokens or --samples for a whole run. With --machine and --chips:
    the best plan that a search finds, compared with the usual strategies; --tactics or
    --schedule are kept, and the rest is searched. With --pipeline: stages on parts of the
    machine, microbatches and their schedule, which --schedule may fix by its name;
    --out FILE.html draws the step. --offsets: a
    packing of a device's buffers on one machine, in a CSV. Inputs that the step returns
    in updated form are treated as donated.
    """
    _check_options(context)
    if pipeline:
        request = _search_request(context.params)
        plan = feature("pipeline_command")(target, request, schedule or "")
        _print_searched(_with_tokens(plan, context.params), context.params)
    elif mesh is None or search is not None:
        request = _search_request(context.params)
        found = search_plan(target, request, schedule, tactics)
        found = _with_tokens(found, context.params)
        _print_searched(found, context.params)
        _save_offsets(found, offsets, as_json)
    else:
        step = options.StepOptions(target, mesh, schedule, tactics, gather, loop)
        _print_planned(step, context.params)


def _print_searched(plan: PlannedStep, values: Mapping[str, Any]) -> None:
    """Print and save the best plan that a search found."""
    text = found_json(plan)
    save_plan(plan, text, values["out"], values["trace"])
    if values["as_json"]:
        print(text)
    else:
        print_found(plan, values["full"])


def _print_planned(step: options.StepOptions, values: Mapping[str, Any]) -> None:
    """Print the plan of given tactics, or compare it on several machines."""
    names, as_json = values["machine"], values["as_json"]
    machines = [] if names is None else find_machines(names, step.num_devices)
    target, plan = step.plan()
    plan = _with_tokens(plan, values)
    run = find_run_length(plan, values["tokens"], values["samples"])
    place = values["place"]
    plans = [plan.on(each, place, donate_state=True) for each in machines] or [plan]
    save_plan(plans[0], plans[0].to_json(), values["out"], values["trace"])
    if len(plans) > 1 or run is not None:
        print_comparison(f"{target.name} on {plan.mesh}", plans, run, as_json)
    else:
        print(plans[0].to_json() if as_json else plans[0].describe(values["full"]))
    _save_offsets(plans[0], values["offsets"], as_json)


def _with_tokens[P: PlannedStep](plan: P, values: Mapping[str, Any]) -> P:
    """The plan with the tokens per step that the user typed, if any."""
    per_step = values["tokens_per_step"]
    return plan if per_step is None else plan.with_tokens(per_step)


def _save_offsets(plan: Plan, path: Path | None, as_json: bool) -> None:
    """Search for offsets of the buffers, write their CSV, and print the bytes saved."""
    if path is None:
        return
    with show_progress("searching for offsets"):
        packing = plan.offsets()
    write_file(path, packing.to_csv().encode())
    if not as_json:
        print(f"\noffsets in {path}\n{packing}")


def _search_request(values: Mapping[str, Any]) -> SearchRequest:
    """The request for a search that the options of the command describe.

    values: value of each option, by the name of its parameter.
    """
    mesh = values["mesh"]
    return SearchRequest(
        values["machine"],
        mesh=None if mesh is None else parse_mesh(mesh),
        budget_s=values["budget"],
        search=values["search"] or "program",
        loops=options.read_loops(values["loop"]),
        **{
            name: values[name]
            for name in (
                "chips", "most_axes", "objective", "memory", "place", "seed", "confirm"
            )
        },
    )  # fmt: skip


def _check_options(context: typer.Context) -> None:
    """Refuse wrong options, and options without effect, before the work begins."""
    values = context.params
    if values["mesh"] is None or values["search"] is not None:
        _check_search(context)
    else:
        _check_comparison(context)
    if values["place"] is not None:
        find_location(values["place"])
    for name in ("out", "trace", "offsets"):
        if values[name] is not None:
            output_file(values[name])
    if values["pipeline"]:
        why = (
            "does not go with --pipeline, which chooses meshes and tactics of stages by "
            "the time of a step; leave it out"
        )
        _refuse(context, _NOT_OF_A_PIPELINE, why)


def _check_search(context: typer.Context) -> None:
    """Refuse options that a search does not take, and a search without machine or chips."""
    values = context.params
    if values["machine"] is None:
        raise TargetError(
            "which mesh? write --mesh data=8,model=4, or let a search choose: "
            "--machine tpu-v5e --chips 32"
            if values["mesh"] is None
            else "a search needs a machine: add --machine, such as --machine tpu-v5e"
        )
    if "," in values["machine"]:
        raise TargetError(
            f"--machine is {values['machine']}; a search takes one machine, several are "
            "compared for given tactics on a --mesh"
        )
    if values["chips"] is None and values["mesh"] is None:
        load_machine(values["machine"])  # raises for a wrong name first
        raise TargetError(
            "how many chips? add --chips 32, say, to search for a plan; or name a --mesh "
            "for tactics of your own"
        )
    why = "is for given tactics on a --mesh, not for a search"
    _refuse(context, ("tokens", "samples", "gather"), why)


def _check_comparison(context: typer.Context) -> None:
    """Refuse options that a plan of given tactics on a given mesh does not take."""
    machine = context.params["machine"]
    if machine is None:
        why = (
            "needs a machine: add --machine, such as --machine tpu-v5e, or --machine "
            "tpu-v5e,h100 to compare"
        )
        _refuse(context, _OF_A_MACHINE, why)
    elif context.params["offsets"] is not None and "," in machine:
        raise TargetError(
            f"--machine is {machine}; --offsets takes one machine, since the buffers of "
            "a step differ from one to another"
        )
    why = (
        "is for a search: add --search program to search on this mesh, or leave out "
        "--mesh and give --machine and --chips"
    )
    _refuse(context, _OF_A_SEARCH, why)


def _refuse(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Raise `TargetError` if the user typed an option, even with its default value."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise TargetError(f"--{name.replace('_', '-')} {why}")

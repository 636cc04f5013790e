"""The commands: `plan`, `explain`, `check`, `confirm`, `machines`, `zoo`, `iopddl`."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from meshwright.app.check.sample import sample_arguments
from meshwright.app.check.virtual import use_virtual_devices
from meshwright.app.explain.show import show_explanation, show_refusals
from meshwright.app.output.files import output_file, write_file
from meshwright.app.output.progress import show_progress
from meshwright.cli.auto import Wanted, check_searches, find_plan, show_found
from meshwright.cli.iopddl import iopddl_command
from meshwright.cli.machines import (
    check_compares,
    comparison_rows,
    comparison_table,
    find_budget,
    find_machines,
    machine_rows,
    machines_table,
)
from meshwright.cli.memory import require_memory
from meshwright.cli.options import (
    All,
    AsJson,
    GatherText,
    Machines,
    MeshText,
    PlaceName,
    Schedule,
    Tactics,
    TargetText,
    load_step,
    make_console,
    plan_target,
)
from meshwright.cli.table import check_table
from meshwright.cli.zoo import print_json, print_rows, zoo_rows
from meshwright.errors import MeshwrightError, TargetError
from meshwright.machine import load_machine, parse_mesh
from meshwright.partitioner.lower import Gather
from meshwright.planner.candidates.objective import OBJECTIVES
from meshwright.predict.energy import find_location

app = typer.Typer(
    name="meshwright",
    help="Partitions a JAX program written for one device over a mesh of many.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("iopddl")(iopddl_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; our own errors are one message and status 2."""
    try:
        app(arguments, prog_name="meshwright")
    except MeshwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:  # noqa: BLE001  of the user's function, or of JAX
        where = _user_line(error)
        print(f"error: {where}{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)


def _user_line(error: BaseException) -> str:
    """`file:line: ` of the innermost frame outside of installed code, "" if none."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = str(Path(__file__).parents[1])
    for frame in reversed(frames):
        if not frame.filename.startswith((mine, sys.base_prefix, sys.prefix, "<")):
            return f"{frame.filename}:{frame.lineno}: "
    return ""


@app.command("plan")
def plan_command(  # noqa: PLR0913  the options of a command
    context: typer.Context,
    target: TargetText,
    mesh: Annotated[
        str | None, typer.Option("--mesh", help="axes and sizes: batch=8,model=4")
    ] = None,
    schedule: Schedule = None,
    tactics: Tactics = None,
    gather: GatherText = Gather.SHARED,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="save the plan as JSON in this file")
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine", help="search the best plan on this one: tpu-v5e, ..."
        ),
    ] = None,
    chips: Annotated[
        int | None, typer.Option("--chips", help="of that machine, if no --mesh says")
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            "--objective", help=f"{', '.join(OBJECTIVES)}; or step_time=1,memory=0.3"
        ),
    ] = "step_time",
    memory: Annotated[
        float | None, typer.Option("--memory", help="GiB of a device, at most")
    ] = None,
    budget: Annotated[float, typer.Option("--budget", help="seconds to search")] = 15.0,
    most_axes: Annotated[
        int, typer.Option("--most-axes", help="of the meshes looked at, 1 to 3")
    ] = 2,
    seed: Annotated[int, typer.Option("--seed", help="of the search")] = 0,
    machines: Machines = None,
    place: PlaceName = None,
    tokens: Annotated[
        float | None, typer.Option("--tokens", help="of a whole run: 300e9")
    ] = None,
    samples: Annotated[
        float | None, typer.Option("--samples", help="of a whole run")
    ] = None,
) -> None:
    """Print what will run: shardings and collectives, tactic by tactic. No devices.

    With --machine and --chips: the best plan that a search finds, beside what people do
    by hand; --tactics or --schedule then stand, and the rest is searched. With
    --machines: what a step takes on each of them, and with --tokens or --samples the
    whole run. State that a step hands back is taken to be donated.
    """
    run: dict[str, object] = {"--tokens": tokens, "--samples": samples}
    if machine is None:
        run["--place"] = place
    check_compares(run, machines)
    check_searches(context, is_search=machine is not None)
    if out is not None:
        output_file(out)  # before the work, which would be lost
    if machine is not None:
        if machines is not None:
            raise TargetError(
                "--machine searches, --machines compares; give one of them"
            )
        parsed = None if mesh is None else parse_mesh(mesh)
        wanted = Wanted(
            machine, chips, objective, memory, budget, parsed, most_axes, schedule,
            tactics, place, seed,
        )  # fmt: skip
        show_found(find_plan(target, wanted), as_json, out)
        return
    if mesh is None:
        raise TargetError("which mesh? --mesh data=8,model=4, or --machine and --chips")
    devices = parse_mesh(mesh).num_devices
    chosen = [] if machines is None else find_machines(machines, devices)
    where = None if place is None else find_location(place)
    loaded, step = load_step(target, mesh, schedule, tactics, gather)
    plan = plan_target(loaded, step)
    if not chosen:
        if out is not None:
            write_file(out, plan.to_json().encode())
        print(plan.to_json() if as_json else plan)
        return
    whole_run = find_budget(plan, tokens, samples)
    plans = [plan.on(machine, where, donate_state=True) for machine in chosen]
    if out is not None:
        write_file(out, plans[0].to_json().encode())
    rows = comparison_rows(plans, whole_run)
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        print(f"{loaded.name} on {step.mesh}")
        make_console().print(comparison_table(rows, whole_run))


@app.command("machines")
def machines_command(as_json: AsJson = False) -> None:
    """List the machines that come along; the numbers are those of one device.

    Their files, with a source for each number, lie in the package's machine/presets.
    """
    rows = list(machine_rows())
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        make_console().print(machines_table(rows))


@app.command("explain")
def explain_command(  # noqa: PLR0913  the options of a command
    target: TargetText,
    mesh: MeshText,
    schedule: Schedule = None,
    tactics: Tactics = None,
    gather: GatherText = Gather.SHARED,
    as_json: AsJson = False,
    expand: All = False,
    machine: Annotated[
        str | None, typer.Option("--machine", help="and seconds and memory on it")
    ] = None,
) -> None:
    """Print why each collective is there, each conflict, and what stayed whole.

    With --machine: also the seconds of each collective, and the ten largest values that
    are alive where memory peaks.
    """
    devices = parse_mesh(mesh).num_devices
    found = None if machine is None else load_machine(machine, devices)
    loaded, step = load_step(target, mesh, schedule, tactics, gather)
    plan = plan_target(loaded, step)
    if found is not None:
        plan = plan.on(found, donate_state=True)
    if as_json:
        fields = json.loads(plan.to_json())
        told = (
            "mesh", "gather", "counts", "collectives", "steps", "whole", "figures"
        )  # fmt: skip
        print(json.dumps({key: fields[key] for key in told}, indent=1))
    else:
        print(show_explanation(plan, expand))


@app.command("check")
def check_command(  # noqa: PLR0913  the options of a command
    target: TargetText,
    mesh: MeshText,
    schedule: Schedule = None,
    tactics: Tactics = None,
    gather: GatherText = Gather.SHARED,
    as_json: AsJson = False,
    expand: All = False,
    seed: Annotated[int, typer.Option("--seed", help="of the random inputs")] = 0,
) -> None:
    """Run original and partitioned on virtual devices and compare every output.

    Inputs that the target gives as shapes only are random. Exit status 1 if any output
    differs by more than rounding explains.
    """
    parsed = parse_mesh(mesh)
    if os.environ.get("JAX_PLATFORMS", "cpu") == "cpu":
        use_virtual_devices(parsed.num_devices)
    loaded, step = load_step(target, mesh, schedule, tactics, gather)
    require_memory(loaded, parsed)
    with show_progress(f"running {loaded.name} on one device and on {parsed}"):
        report = step.check(*sample_arguments(loaded.fn, loaded.args, seed))
        steps = step.plan(*loaded.args).steps
    if as_json:
        print(
            json.dumps(
                {"target": loaded.name, "mesh": mesh, **report.to_json()}, indent=1
            )
        )
    else:
        make_console().print(check_table(report, expand))
        print(report.summary)
        for line in show_refusals(steps):
            print(line)
    raise typer.Exit(0 if report.ok else 1)


@app.command("confirm")
def confirm_command(  # noqa: PLR0913  the options of a command
    target: TargetText,
    mesh: MeshText,
    machine: Annotated[
        str, typer.Option("--machine", help="a TPU or GPU: preset or TOML file")
    ],
    schedule: Schedule = None,
    tactics: Tactics = None,
    gather: GatherText = Gather.SHARED,
    as_json: AsJson = False,
    full: Annotated[
        bool, typer.Option("--full", help="of a TPU, code and its seconds too: slow")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="seconds that it may take")
    ] = 600.0,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="new folder for the compiler's files")
    ] = None,
) -> None:
    """Compile with the machine's real compiler, without it: predicted beside compiled.

    Memory, operations and collectives of a step. State that a step hands back is taken
    to be donated. Needs one of this package's extras, tpu or gpu.
    """
    found = load_machine(machine, parse_mesh(mesh).num_devices)
    loaded, step = load_step(target, mesh, schedule, tactics, gather)
    plan = plan_target(loaded, step)
    told = plan.confirm(
        found, full=full, timeout_s=timeout_s, folder=keep, donate_state=True
    )
    if as_json:
        print(json.dumps({"target": loaded.name, "mesh": mesh, **told.to_json()}))
    else:
        print(f"{loaded.name} on {step.mesh}\n{told}")


@app.command("zoo")
def zoo_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="all by default")
    ] = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="the small forms, not the published sizes")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the programs of the zoo: parameters, FLOPs a step, memory on one device.

    Memory is what is alive at once when ops run in order and nothing is fused.
    """
    rows = zoo_rows(names or (), tiny)
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, make_console().width)

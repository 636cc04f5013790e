"""`meshwright explain`: why each collective of a plan is there."""

import json
from typing import Annotated

import typer

import meshwright.cli.options as options
from meshwright.app.explain.show import show_explanation
from meshwright.machine import load_machine, parse_mesh
from meshwright.partitioner.lower import Gather

_FIELDS = ("mesh", "gather", "counts", "collectives", "steps", "whole", "figures")
"""Fields of a plan's JSON form that `--json` prints."""


def explain_command(  # noqa: PLR0913  the options of a command
    target: options.TargetText,
    mesh: options.MeshText,
    schedule: options.Schedule = None,
    tactics: options.Tactics = None,
    gather: options.GatherText = Gather.SHARED,
    as_json: options.AsJson = False,
    expand: options.All = False,
    machine: Annotated[
        str | None,
        typer.Option("--machine", help="machine for the seconds and the memory"),
    ] = None,
) -> None:
    """Print why each collective is there, each conflict, and each op left whole.

    With --machine: also the seconds of each collective, and the ten largest values that
    are alive when memory peaks.
    """
    devices = parse_mesh(mesh).num_devices
    placed_on = None if machine is None else load_machine(machine, devices)
    loaded, step = options.load_step(target, mesh, schedule, tactics, gather)
    plan = options.plan_target(loaded, step)
    if placed_on is not None:
        plan = plan.on(placed_on, donate_state=True)
    if as_json:
        fields = json.loads(plan.to_json())
        print(json.dumps({key: fields[key] for key in _FIELDS}, indent=1))
    else:
        print(show_explanation(plan, expand))

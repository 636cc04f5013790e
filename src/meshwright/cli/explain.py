"""`meshwright explain`: the reason for each collective of a plan."""

import json
from typing import Annotated

from typer import Option

import meshwright.cli.arguments.options as options
from meshwright.app.explain.show import show_explanation
from meshwright.machine import load_machine
from meshwright.registry import feature

_FIELDS = ("mesh", "gather", "counts", "collectives", "steps", "whole", "figures")
"""Fields of a plan's JSON form that `--json` prints."""


@options.takes_step
def explain_command(
    step: options.StepOptions,
    as_json: options.AsJson = False,
    full: options.Full = False,
    machine: options.MachineName = None,
    residuals: Annotated[
        bool,
        Option("--residuals", help="what a backward pass reads of the forward pass"),
    ] = False,
) -> None:
    """Print why each collective is there, each conflict, and each op left whole.

    With --machine: also the seconds of each collective, and the ten largest values that
    are alive when memory peaks.
    With --residuals: instead, each value that the step's forward pass saves for its
    backward pass, with its bytes on one device and its source line. A target whose result
    is one number is taken as a loss, and its gradient is the step.
    """
    placed_on = None if machine is None else load_machine(machine, step.num_devices)
    if residuals:
        feature("residuals_command")(step, as_json, full)
        return
    _, plan = step.plan()
    if placed_on is not None:
        plan = plan.on(placed_on, donate_state=True)
    if as_json:
        fields = json.loads(plan.to_json())
        print(json.dumps({key: fields[key] for key in _FIELDS}, indent=1))
    else:
        print(show_explanation(plan, full))

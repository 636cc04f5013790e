"""`meshwright explain`: the reason for each collective of a plan."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

import meshwright.cli.arguments.options as options
from meshwright.app.explain.residuals import residuals_of_step, show_residuals
from meshwright.app.explain.show import show_explanation
from meshwright.app.output.progress import show_progress
from meshwright.compile.autodiff.linearize import residuals_of_loss
from meshwright.compile.autodiff.residual import Residual
from meshwright.machine import load_machine

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
        typer.Option(
            "--residuals", help="what a backward pass reads of the forward pass"
        ),
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
        name, found = _residuals(step)
        if as_json:
            print(json.dumps([asdict(each) for each in found], indent=1))
        else:
            print(show_residuals(name, found, full))
        return
    _, plan = step.plan()
    if placed_on is not None:
        plan = plan.on(placed_on, donate_state=True)
    if as_json:
        fields = json.loads(plan.to_json())
        print(json.dumps({key: fields[key] for key in _FIELDS}, indent=1))
    else:
        print(show_explanation(plan, full))


def _residuals(step: options.StepOptions) -> tuple[str, tuple[Residual, ...]]:
    """The name of the target, and what its forward pass saves for its backward pass."""
    target, partitioned = step.load()
    with show_progress(f"reading {target.name}"):
        of_loss = residuals_of_loss(target.fn, target.args, partitioned.tactics)
        if of_loss is not None:
            return target.name, of_loss
        decided = partitioned.decide(*target.args)
        return target.name, residuals_of_step(decided)

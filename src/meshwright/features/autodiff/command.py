"""`meshwright explain --residuals`: what a forward pass saves for the backward pass."""

import json
from dataclasses import asdict

from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import StepOptions
from meshwright.features.autodiff.linearize import residuals_of_loss
from meshwright.features.autodiff.residual import Residual
from meshwright.features.autodiff.step_residuals import (
    residuals_of_step,
    show_residuals,
)


def residuals_command(step: StepOptions, as_json: bool, full: bool) -> None:
    """Print the residuals of a step, the largest first; all of them if `full`."""
    name, residuals = _residuals(step)
    if as_json:
        print(json.dumps([asdict(each) for each in residuals], indent=1))
    else:
        print(show_residuals(name, residuals, full))


def _residuals(step: StepOptions) -> tuple[str, tuple[Residual, ...]]:
    """The name of the target, and what its forward pass saves for its backward pass."""
    target, partitioned = step.load()
    with show_progress(f"reading {target.name}"):
        of_loss = residuals_of_loss(target.fn, target.args, partitioned.tactics)
        if of_loss is not None:
            return target.name, of_loss
        decided = partitioned.decide(*target.args)
        return target.name, residuals_of_step(decided)

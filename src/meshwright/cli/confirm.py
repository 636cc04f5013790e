"""`meshwright confirm`: predicted figures of a step, and those of the real compiler."""

import json
from pathlib import Path
from typing import Annotated

from typer import Option

import meshwright.cli.arguments.options as options
from meshwright.machine import load_machine


@options.takes_step
def confirm_command(
    step: options.StepOptions,
    machine: Annotated[str, Option(help="a TPU or GPU: preset or TOML file")],
    as_json: options.AsJson = False,
    full: Annotated[
        bool, Option("--full", help="for TPUs: generate code too, for seconds; slow")
    ] = False,
    timeout_s: Annotated[
        float, Option("--timeout", help="seconds after which to give up")
    ] = 600.0,
    keep: Annotated[
        Path | None, Option("--keep", help="new folder for the compiler's files")
    ] = None,
) -> None:
    """Compile a step with the real compiler of a machine, and compare the figures.

    The machine itself is not needed, only one of this package's extras, tpu or gpu.
    Compares memory, operations and collectives. Inputs that the step returns in updated
    form (parameters, optimizer state) are treated as donated.
    """
    placed_on = load_machine(machine, step.num_devices)
    loaded, plan = step.plan()
    confirmation = plan.confirm(
        placed_on, full=full, timeout_s=timeout_s, folder=keep, donate_state=True
    )
    if as_json:
        fields = {
            "target": loaded.name,
            "mesh": str(plan.mesh),
            **confirmation.to_json(),
        }
        print(json.dumps(fields))
    else:
        print(f"{loaded.name} on {plan.mesh}\n{confirmation}")

"""`meshwright train`: start a training that a recipe describes, or resume it."""

import math
import os
import shlex
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from meshwright.app.check.sample import use_virtual_devices
from meshwright.app.output.numbers import show_seconds
from meshwright.app.output.progress import show_progress
from meshwright.app.partition import partition
from meshwright.app.plan import Plan
from meshwright.errors import TargetError
from meshwright.features.train.prepare import prepare
from meshwright.features.train.recipes.partitioning import mesh_for
from meshwright.features.train.recipes.read_recipe import load_recipe
from meshwright.features.train.recipes.recipe import Recipe
from meshwright.features.train.train import train, with_options
from meshwright.machine.memory_size import show_bytes
from meshwright.run.local.devices import find_devices


def train_command(
    recipe: Annotated[
        Path, Argument(metavar="RECIPE", help="TOML file, see docs/train.md")
    ],
    resume: Annotated[
        bool, Option("--resume", help="go on from the last checkpoint, if any")
    ] = False,
    steps: Annotated[
        int | None, Option(min=1, help="last step, instead of run.steps")
    ] = None,
    out: Annotated[Path | None, Option(help="folder, instead of output.folder")] = None,
    cluster: Annotated[
        str | None, Option(help="such as local:4x2, instead of cluster.address")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="print the plan of the step, and end")
    ] = False,
) -> None:
    """Train as a recipe says, and save, measure and evaluate on the way.

    Ctrl-C saves after the current step and ends with status 130; --resume continues there.
    """
    folder = None if out is None else str(out)
    chosen = with_options(load_recipe(recipe), steps, folder, cluster)
    _make_devices(chosen)
    if dry_run:
        print(_plan_of(chosen).describe())
        return
    outcome = train(chosen, resume=resume, tell_plan=_print_plan)
    print(outcome)
    if not outcome.is_complete:
        given = {"--steps": steps, "--out": out, "--cluster": cluster}
        print(f"go on with: {resuming_command(recipe, given)}")
        raise typer.Exit(outcome.interruption.exit_status)


def resuming_command(recipe: Path, given: Mapping[str, object]) -> str:
    """The shell command that goes on with a run, with all options that it was given.

    given: values of the options by name; `None` for an option that was not given.
    """
    options = [(name, str(x)) for name, x in given.items() if x is not None]
    return shlex.join(
        ["meshwright", "train", str(recipe), "--resume", *chain(*options)]
    )


def _make_devices(recipe: Recipe) -> None:
    """On a CPU, create as many virtual devices as the recipe's mesh has.

    Nothing is done if a size of the mesh is left open.
    """
    sizes = recipe.partition.mesh.values()
    is_here = recipe.cluster.address in ("", "inline")
    is_cpu = os.environ.get("JAX_PLATFORMS", "cpu") == "cpu"
    if is_here and is_cpu and -1 not in sizes:
        use_virtual_devices(math.prod(sizes))
    find_devices()


def _plan_of(recipe: Recipe) -> Plan:
    """The plan of a recipe's step under the recipe's tactics; needs no devices."""
    prepared = prepare(recipe)
    if prepared.tactics is None:
        raise TargetError(
            'partition.tactics is "auto": --dry-run shows the plan of given tactics; '
            "search for one with meshwright plan"
        )
    mesh = mesh_for(recipe.partition, len(find_devices()))
    step = partition(
        prepared.functions.train_step,
        mesh,
        prepared.tactics,
        gather=recipe.partition.gather,
        donate_argnums=0,
    )
    with show_progress("planning"):
        plan = step.plan(*prepared.shapes)
        return plan.on(recipe.partition.machine, donate_state=True)


def _print_plan(plan: Plan) -> None:
    """Print one line about the plan on stderr."""
    size = show_bytes(plan.peak_memory_bytes)
    typer.echo(
        f"mesh {plan.mesh}; predicted {show_seconds(plan.step_time_s)} a step and {size} "
        f"of memory per device on {plan.figures.machine if plan.figures else ''}",
        err=True,
    )

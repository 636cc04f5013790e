"""`meshwright tune`: the layouts of a program with which its compiler is fastest."""

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

import meshwright.cli.options as options
from meshwright.app.output.files import output_file, write_file
from meshwright.app.partition import partition
from meshwright.app.tune import tune
from meshwright.cli.schedule import choose_tactics
from meshwright.cli.target import find_target
from meshwright.compile.tune.tuned import TunedLayouts
from meshwright.machine import parse_mesh


class Tunable(Enum):
    """What can be tuned."""

    LAYOUTS = "layouts"


def tune_command(  # noqa: PLR0913  the options of a command
    what: Annotated[Tunable, typer.Argument(help="what to tune", metavar="layouts")],
    target: options.TargetText,
    backend: Annotated[
        str,
        typer.Option(
            "--backend", help="tpu-v5e and other TPUs (compiled), or xla-cpu (measured)"
        ),
    ] = "tpu-v5e",
    budget: Annotated[int, typer.Option("--budget", help="programs to compile")] = 30,
    seed: options.SearchSeed = 0,
    mesh: options.OptionalMesh = None,
    schedule: options.Schedule = None,
    tactics: options.Tactics = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="seconds for one compilation")
    ] = 300.0,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="file of verdicts, to go on from")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="file to save the layouts in, as JSON")
    ] = None,
    code: Annotated[
        bool, typer.Option("--code", help="print code to paste as well")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Find layouts of arguments, results and values that cost less than the default.

    Without --mesh for one device, with it for the device program of a plan. Exit status 1
    if nothing better than the default was found.
    """
    del what  # layouts are all that can be tuned yet
    saved = None if out is None else output_file(out)
    step, args = _step_of(target, mesh, schedule, tactics)
    tuned = tune(
        step,
        args,
        backend=backend,
        budget=budget,
        seed=seed,
        resume=resume,
        timeout_s=timeout_s,
    )
    if saved is not None:
        write_file(saved, tuned.to_json().encode())
    _show(tuned, as_json, code)
    if not tuned.layouts:
        raise typer.Exit(1)


def _step_of(
    target: str, mesh: str | None, schedule: str | None, tactics: str | None
) -> tuple[Any, Sequence[Any] | None]:
    """The function and arguments of a target, or its plan for a mesh, and `None`."""
    found = find_target(target)
    if mesh is None:
        return found.fn, found.args
    chosen = choose_tactics(found, schedule, tactics)
    return partition(found.fn, parse_mesh(mesh), chosen).plan(*found.args), None


def _show(tuned: TunedLayouts, as_json: bool, code: bool) -> None:
    """Print a result as JSON, or as a table with code to paste below it if asked."""
    print(tuned.to_json() if as_json else tuned)
    if code and not as_json:
        print(tuned.code)

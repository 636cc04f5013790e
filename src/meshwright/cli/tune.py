"""`meshwright tune`: layouts or tiles with which a program is fastest."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

import meshwright.cli.options as options
from meshwright.app.output.files import output_file, write_file
from meshwright.app.partition import partition
from meshwright.app.tune import tune
from meshwright.cli.schedule import choose_tactics
from meshwright.cli.target import find_target
from meshwright.compile.tune.tuned import TunedLayouts
from meshwright.errors import CompilerError
from meshwright.machine import parse_mesh


class Tunable(Enum):
    """What can be tuned."""

    LAYOUTS = "layouts"
    TILES = "tiles"


def tune_command(  # noqa: PLR0913  the options of a command
    what: Annotated[
        Tunable, typer.Argument(help="what to tune", metavar="layouts|tiles")
    ],
    target: options.TargetText,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            help="layouts: tpu-v5e and other TPUs (compiled), or xla-cpu (measured);"
            " tiles: iree-cpu (measured)",
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget",
            help="programs to compile [30], or tilings to try per kernel [20]",
        ),
    ] = None,
    seed: options.SearchSeed = 0,
    mesh: options.OptionalMesh = None,
    schedule: options.Schedule = None,
    tactics: options.Tactics = None,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", help="seconds for one compilation")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="file of verdicts, to go on from")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="file for the layouts, as JSON, or for IREE's spec"),
    ] = None,
    code: Annotated[
        bool, typer.Option("--code", help="print code to paste as well")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Find layouts of values, or tiles of kernels, that cost less than the default.

    Layouts: without --mesh for one device, with it for the device program of a plan.
    Tiles: of the kernels that IREE compiles for this CPU, timed on one thread. Exit
    status 1 if nothing better than the default was found.
    """
    saved = None if out is None else output_file(out)
    found = find_target(target)
    if what is Tunable.TILES:
        _refuse_layout_options(backend, mesh, schedule, tactics, code)
        tuned = tune(
            found.fn,
            found.args,
            backend="iree-cpu",
            budget=budget,
            seed=seed,
            resume=resume,
            timeout_s=timeout_s,
        )
        text, is_better = tuned.spec, bool(tuned.spec)
    else:
        step, args = found.fn, found.args
        if mesh is not None:
            chosen = choose_tactics(found, schedule, tactics)
            step = partition(found.fn, parse_mesh(mesh), chosen).plan(*found.args)
            args = None
        tuned = tune(
            step,
            args,
            backend=backend or "tpu-v5e",
            budget=30 if budget is None else budget,
            seed=seed,
            resume=resume,
            timeout_s=timeout_s,
        )
        text, is_better = tuned.to_json(), bool(tuned.layouts)
    if saved is not None and text:
        write_file(saved, text.encode())
    print(tuned.to_json() if as_json else tuned)
    if isinstance(tuned, TunedLayouts) and code and not as_json:
        print(tuned.code)
    if not is_better:
        raise typer.Exit(1)


def _refuse_layout_options(backend: str | None, *others: object) -> None:
    """Raise if an option was given that only layouts have."""
    if backend not in (None, "iree-cpu"):
        raise CompilerError(
            f"no backend {backend!r} for tiles: iree-cpu is the only one; TPUs and "
            "xla-cpu choose their tiles themselves, and can be tuned by `tune layouts`"
        )
    if any(others):
        raise CompilerError(
            "--mesh, --schedule, --tactics and --code are for layouts: tiles are tuned "
            "for a function on one CPU"
        )

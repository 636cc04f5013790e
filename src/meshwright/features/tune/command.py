"""`meshwright tune`: search for layouts or tile sizes that make a program faster."""

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

import meshwright.cli.arguments.options as options
from meshwright.app.output.files import output_file, write_file
from meshwright.app.partition import partition
from meshwright.cli.arguments.schedule import choose_tactics
from meshwright.cli.arguments.target import find_target
from meshwright.errors import CompilerError
from meshwright.features.tune.tiles.tuned_tiles import TunedTiles
from meshwright.features.tune.tune import tune
from meshwright.features.tune.tuned_layouts import TunedLayouts
from meshwright.machine import parse_mesh


class Tunable(Enum):
    """The choice of the compiler that is tuned."""

    LAYOUTS = "layouts"
    TILES = "tiles"


_TunableName = Annotated[
    Tunable, Argument(help="what to tune", metavar="layouts|tiles")
]
_Backend = Annotated[
    str | None,
    Option(
        "--backend",
        help="layouts: tpu-v5e and other TPUs (compiled), or xla-cpu (measured);"
        " tiles: iree-cpu (measured)",
    ),
]
_NumTried = Annotated[
    int | None,
    Option(
        "--budget", help="programs to compile [30], or tilings to try per kernel [20]"
    ),
]
_TimeoutSeconds = Annotated[
    float | None, Option("--timeout", help="seconds for one compilation")
]
_VerdictsFile = Annotated[
    Path | None, Option("--resume", help="file of verdicts, to go on from")
]
_TunedFile = Annotated[
    Path | None,
    Option("--out", help="file for the layouts, as JSON, or for IREE's spec"),
]
_PrintCode = Annotated[bool, Option("--code", help="print code to paste as well")]


def tune_command(  # noqa: PLR0913  the options of a command
    what: _TunableName,
    target: options.TargetText,
    backend: _Backend = None,
    budget: _NumTried = None,
    seed: options.SearchSeed = 0,
    mesh: options.OptionalMesh = None,
    schedule: options.Schedule = None,
    tactics: options.Tactics = None,
    timeout_s: _TimeoutSeconds = None,
    resume: _VerdictsFile = None,
    out: _TunedFile = None,
    code: _PrintCode = False,
    as_json: options.AsJson = False,
) -> None:
    """Find layouts of values, or tiles of kernels, that cost less than the default.

    Layouts: without --mesh for one device, with it for the device program of a plan.
    Tiles: of the kernels that IREE compiles for this CPU, timed on one thread. Exit
    status 1 if nothing better than the default was found.
    """
    saved = None if out is None else output_file(out)
    limits: dict[str, Any] = {"seed": seed, "resume": resume, "timeout_s": timeout_s}
    if what is Tunable.TILES:
        _refuse_layout_options(backend, mesh, schedule, tactics, code)
        program = find_target(target)
        tuned = tune(
            program.fn, program.args, backend="iree-cpu", budget=budget, **limits
        )
        text = tuned.spec
    else:
        step, args = _step_of(target, mesh, schedule, tactics)
        name = backend or "tpu-v5e"
        tuned = tune(
            step,
            args,
            backend=name,
            budget=30 if budget is None else budget,
            **limits,
        )
        text = tuned.to_json()
    if saved is not None and text:
        write_file(saved, text.encode())
    _show(tuned, as_json, code)
    if not (tuned.layouts if isinstance(tuned, TunedLayouts) else tuned.spec):
        raise typer.Exit(1)


def _step_of(
    target: str, mesh: str | None, schedule: str | None, tactics: str | None
) -> tuple[Any, Sequence[Any] | None]:
    """What is tuned: a target's function and arguments, or a plan and `None`.

    It is a plan if the command names a mesh.
    """
    program = find_target(target)
    if mesh is None:
        return program.fn, program.args
    user_tactics = choose_tactics(program, schedule, tactics)
    step = partition(program.fn, parse_mesh(mesh), user_tactics)
    return step.plan(*program.args), None


def _show(tuned: TunedLayouts | TunedTiles, as_json: bool, code: bool) -> None:
    """Print the result as JSON, or as a table.

    code: also print the code that applies the result, below the table.
    """
    print(tuned.to_json() if as_json else tuned)
    if isinstance(tuned, TunedLayouts) and code and not as_json:
        print(tuned.code)


def _refuse_layout_options(backend: str | None, *others: object) -> None:
    """Refuse options for tiles that only layouts have."""
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

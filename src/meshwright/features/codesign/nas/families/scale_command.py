"""`meshwright nas scale`: a family of models by one law, for several latency targets."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from meshwright.app.output.progress import show_progress
from meshwright.app.output.table import Table
from meshwright.app.step.load_module import load_module
from meshwright.cli.arguments.options import AsJson, make_console
from meshwright.cli.arguments.target import Target, find_target
from meshwright.errors import NasError
from meshwright.features.codesign.nas.cost.latency import latency
from meshwright.features.codesign.nas.cost.latency_command import (
    BatchSize,
    Dtype,
    machines_of,
    made_with,
)
from meshwright.features.codesign.nas.families.members import write_family
from meshwright.features.codesign.nas.families.points import Point, read_points
from meshwright.features.codesign.nas.families.published import (
    NOTE,
    published_accuracy,
)
from meshwright.features.codesign.nas.families.scaling import (
    Family,
    checked_base,
    checked_targets,
    edges_of,
    scale_family,
)
from meshwright.machine import Machine

_GRID = "1,1.4,2,2.8"
_Target = Annotated[
    str | None,
    Argument(
        metavar="[TARGET]",
        help="takes depth=, width= and size=, such as zoo/efficientnet.py:x_b0",
    ),
]
_Targets = Annotated[
    str, Option("--targets-ms", help="latency targets in milliseconds: 5,10,20")
]
_PointsFile = Annotated[
    Path | None,
    Option(
        "--points", help="CSV of models: depth,width,resolution,accuracy,latency_ms"
    ),
]
_MachineName = Annotated[
    str | None, Option("--machine", help="preset or TOML file, with TARGET")
]
_AccuracyFn = Annotated[
    str | None,
    Option(
        "--accuracy",
        help="file.py:function of depth, width and size that returns a model's accuracy; "
        "without it a proxy from EfficientNet's published accuracies",
    ),
]
_Grid = Annotated[
    str, Option("--grid", help="multipliers of depth, width and size to combine")
]
_Base = Annotated[
    float | None, Option("--base", help="resolution at depth and width 1")
]
_Out = Annotated[
    Path | None,
    Option("--out", help="folder for the family, with a target for each model of it"),
]


def scale_command(  # noqa: PLR0913  an option each
    target: _Target = None,
    targets_ms: _Targets = "",
    points: _PointsFile = None,
    machine: _MachineName = None,
    accuracy: _AccuracyFn = None,
    grid: _Grid = _GRID,
    base: _Base = None,
    batch: BatchSize = None,
    dtype: Dtype = None,
    out: _Out = None,
    as_json: AsJson = False,
) -> None:
    """Fit one law for depth, width and resolution to the best model of each target.

    Models come from a table, or a grid of a target's scales is priced on a machine.
    """
    targets = checked_targets(numbers_of(targets_ms, "--targets-ms"))
    checked_base(base)
    if (target is None) == (points is None):
        raise NasError("give either a TARGET with --machine, or --points with a table")
    if points is not None:
        _check_unused(
            {"--machine": machine, "--accuracy": accuracy, "--batch": batch}
            | {"--dtype": dtype, "--grid": None if grid == _GRID else grid}
        )
        evaluated, chip = read_points(points), None
        family = scale_family(evaluated, targets, base=base)
    elif machine is None or target is None:
        raise NasError("with TARGET, --machine is needed, or give --points")
    else:
        chip, *others = machines_of(machine)
        if others:
            raise NasError(f"--machine is {machine!r}; wanted one, as a law is of one")
        timed = partial(
            model_ms, find_target(target, is_inference=True), chip, batch, dtype
        )
        size = base or 224
        scored = _published_at(size) if accuracy is None else _function(accuracy)
        evaluated = _evaluate(_multipliers(grid), size, timed, scored)
        family = scale_family(evaluated, targets, timed, size)
    if out is not None:
        changes = {"batch": batch, "dtype": dtype}
        given = {name: value for name, value in changes.items() if value is not None}
        write_family(out, family, target, chip.name if chip else "", given)
    if target is not None and accuracy is None:
        print(NOTE, file=sys.stderr)
    for remark in edges_of(evaluated, family.winners):
        print(remark, file=sys.stderr)
    if as_json:
        print(json.dumps(family.to_plain(), indent=1))
        return
    print(f"law: {family.law}, spread {family.law.spread:.3f}\n")
    make_console().print(_table(family))


def _published_at(base: float) -> Callable[[float, float, float], float]:
    """The proxy of accuracy, as a function of depth, width and size."""
    return lambda depth, width, size: published_accuracy(depth, width, size / base)


def _check_unused(options: Mapping[str, Any]) -> None:
    """Fail if an option is given that counts with a TARGET only."""
    for name, value in options.items():
        if value is not None:
            raise NasError(f"{name} is for a TARGET; with --points it changes nothing")


def _multipliers(text: str) -> list[float]:
    """The multipliers of the grid, each once."""
    found = sorted(set(numbers_of(text, "--grid")))
    if not found or not all(0 < each < math.inf for each in found):
        raise NasError(
            f"--grid is {text!r}; wanted multipliers above 0, such as {_GRID}"
        )
    return found


def numbers_of(text: str, option: str) -> list[float]:
    """The numbers of a list with commas; `NasError` for anything else."""
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise NasError(
            f"{option} is {text!r}; wanted numbers such as 5,10,20"
        ) from None


def model_ms(  # noqa: PLR0913  a target, a machine, its options, and three scales
    target: Target,
    machine: Machine,
    batch: int | None,
    dtype: str | None,
    depth: float,
    width: float,
    size: float,
) -> float:
    """Milliseconds of a target at a depth, width and image size."""
    scales = {"depth": depth, "width": width, "size": max(1, round(size))}
    made = made_with(target, {"batch": batch, "dtype": dtype, **scales})
    return 1e3 * latency(*made, machine).seconds


def _evaluate(
    steps: Sequence[float],
    base: float,
    timed: Callable[[float, float, float], float],
    scored: Callable[[float, float, float], Any],
) -> list[Point]:
    """All models of the grid, with accuracy and latency."""
    models = list(product(steps, steps, [base * step**0.5 for step in steps]))
    found: list[Point] = []
    with show_progress("evaluating") as show:
        for number, scales in enumerate(models, start=1):
            show(f"{number} of {len(models)}")
            found.append(Point(*scales, _score(scored, *scales), timed(*scales)))
    return found


def _score(scored: Callable[..., Any], *scales: float) -> float:
    """The accuracy of a model; `NasError` if the function returns no number."""
    found = scored(*scales)
    try:
        return float(found)
    except (TypeError, ValueError):
        raise NasError(
            f"the accuracy at depth, width and size {scales} is {found!r:.60}; wanted a "
            "number"
        ) from None


def _function(text: str) -> Callable[..., Any]:
    place, _, name = text.rpartition(":")
    function = getattr(load_module(place), name, None) if place else None
    if not callable(function):
        raise NasError(
            f"--accuracy is {text!r}; wanted file.py:function, a function of depth, width "
            "and size"
        )
    return function


def _table(family: Family) -> Table:
    titles = (
        ">target", ">phi", ">depth", ">width", ">resolution", ">latency", ">winner",
    )  # fmt: skip
    rows = (
        (
            f"{m.target_ms:g} ms",
            f"{m.phi:.2f}",
            f"{m.depth:.2f}",
            f"{m.width:.2f}",
            f"{m.resolution:.0f}",
            f"{m.latency_ms:.3g} ms",
            f"{w.depth:.2f}, {w.width:.2f}, {w.resolution:.0f}: {w.accuracy:.4g}",
        )
        for m, w in zip(family.members, family.winners, strict=True)
    )
    return Table(titles, tuple(rows))

"""`meshwright accelerator learn`: a design from logged designs alone."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import AsJson
from meshwright.errors import AcceleratorError, NoDesignError
from meshwright.features.codesign.accelerator.logs.prime_space import AREA_CAP_MM2
from meshwright.features.codesign.accelerator.offline.learn import (
    Avoid,
    LearnedDesign,
    learn_design,
)
from meshwright.learn.training import CurvePoint


def learn_command(  # noqa: PLR0913  an option each
    logs: Annotated[
        Path,
        Argument(
            metavar="LOGS",
            help="folder with NAME.csv of `accelerator log`, or NAME/*.tfrecord",
        ),
    ],
    application: Annotated[
        str, Option("--for", help="application, by the name of its log")
    ],
    out: Annotated[Path, Option("--out", help="file for the design, as TOML")],
    avoid: Annotated[
        Avoid, Option("--avoid", help="infeasible designs, or nothing")
    ] = Avoid.INFEASIBLE,
    area_mm2: Annotated[
        float, Option("--area-mm2", min=0, help="largest area of the die")
    ] = AREA_CAP_MM2,
    zero_shot: Annotated[
        bool, Option("--zero-shot", help="use no logs of the application itself")
    ] = False,
    steps: Annotated[int, Option("--steps", min=1, help="of the training")] = 1500,
    evaluations: Annotated[
        int,
        Option("--evaluations", min=1, help="of the surrogate, for its best design"),
    ] = 4000,
    seed: Annotated[int, Option("--seed", min=0, help="random seed")] = 0,
    as_json: AsJson = False,
) -> None:
    """Learn a design from logged designs alone: nothing is simulated.

    Beside the design, the training is saved as .npz; a training that was cut is continued
    by the same command. Exit status 0: done, 1: no design keeps the cap, 2: misuse.
    """
    if out.suffix != ".toml":
        raise AcceleratorError(f"--out is {out}; wanted a file that ends in .toml")
    out.parent.mkdir(parents=True, exist_ok=True)
    with show_progress(f"learning for {application}") as show:
        try:
            found = learn_design(
                logs,
                application,
                area_mm2=area_mm2,
                avoid=avoid,
                is_zero_shot=zero_shot,
                steps=steps,
                evaluations=evaluations,
                seed=seed,
                checkpoint=out.with_suffix(".npz"),
                on_epoch=lambda point: show(_progress_line(point)),
                say=show,
            )
        except NoDesignError as nothing:
            print(nothing, file=sys.stderr)
            raise Exit(1) from None
    found.design.save(out)
    if as_json:
        print(json.dumps(_figures(found), indent=1))
        return
    for line in _lines(found):
        print(line)
    print(out)


def _progress_line(point: CurvePoint) -> str:
    tau = "" if math.isnan(point.valid_score) else f", tau {point.valid_score:.3f}"
    return f"epoch {point.epoch + 1}, loss {point.loss:.3f}{tau}"


def _figures(found: LearnedDesign) -> dict[str, object]:
    """All figures as JSON has them."""
    named = {each.name: getattr(found, each.name) for each in fields(found)}
    return {name: value for name, value in named.items() if name != "design"}


def _lines(found: LearnedDesign) -> list[str]:
    lines = [
        f"{found.num_logged} logged designs, {found.num_feasible} feasible"
        + (f", {found.num_skipped} corrupt ones skipped" if found.num_skipped else "")
    ]
    lines += [f"tau on held-out designs of {n}: {t:.3f}" for n, t in found.tau.items()]
    lines += [f"{name:18} {value}" for name, value in found.values.items()]
    lines.append(
        f"area {found.area_mm2:.1f} mm2 (predicted with margin "
        f"{found.predicted_area_mm2:.1f})"
    )
    if found.predicted_ms is not None and found.best_logged_ms is not None:
        lines.append(
            f"predicted {found.predicted_ms:.4g} ms; best logged "
            f"{found.best_logged_ms:.4g} ms"
        )
    return lines

"""`meshwright codesign`: a model and the accelerator that runs it, searched together."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import AsJson
from meshwright.features.codesign.joint.search import OBJECTIVES, search
from meshwright.features.codesign.joint.templates import TEMPLATES, find_template
from meshwright.features.codesign.nas.searching.search import ModelFront
from meshwright.features.codesign.nas.searching.search_command import (
    search_folder,
    write_front,
)
from meshwright.search.trials import ENGINES, Trial


def codesign_command(  # noqa: PLR0913  an option each
    space: Annotated[
        str,
        Argument(
            metavar="SPACE",
            help="path.py[:name], a function that returns a nas.Space; "
            "`evaluate` of the file is a nas.Trained",
        ),
    ],
    template: Annotated[
        str, Option("--template", help=f"accelerators: {', '.join(TEMPLATES)}")
    ] = "edge",
    latency_ms: Annotated[
        float | None, Option("--latency-ms", min=0, help="largest latency of a call")
    ] = None,
    area_mm2: Annotated[
        float | None,
        Option("--area-mm2", min=0, help="largest area; default: the baseline's"),
    ] = None,
    accuracy: Annotated[
        float | None,
        Option(
            "--accuracy", min=0, max=1, help="least accuracy; one pair, not the front"
        ),
    ] = None,
    objective: Annotated[
        str, Option("--objective", help=f"beside accuracy: {', '.join(OBJECTIVES)}")
    ] = "energy",
    trials: Annotated[int, Option("--trials", min=1, help="pairs to try")] = 500,
    engine: Annotated[
        str | None,
        Option(
            "--engine",
            help=f"one of {', '.join(ENGINES)}; default: nsga2, with --accuracy memetic",
        ),
    ] = None,
    seed: Annotated[int, Option("--seed", min=0, help="random seed")] = 0,
    workers: Annotated[int, Option("--workers", min=0, help="processes")] = 0,
    out: Annotated[Path | None, Option("--out", help="folder for the pairs")] = None,
    resume: Annotated[
        Path | None, Option("--resume", help="folder of a search to go on with")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search for a model and the accelerator that runs it, together.

    Writes front.json, front.html, journal.jsonl, and for each pair of the front its
    candidate, figures and design.toml. Exit status 0: a pair was found, 1: none keeps the
    limits, 2: misuse.
    """
    find_template(template)
    folder = search_folder(out, resume)
    with show_progress("searching") as show:
        front = search(
            space,
            template=template,
            objective=objective,
            latency_s=math.inf if latency_ms is None else latency_ms / 1e3,
            area_mm2=area_mm2,
            least_accuracy=accuracy,
            engine=engine,
            trials=trials,
            seed=seed,
            journal=None if folder is None else folder / "journal.jsonl",
            workers=workers,
            on_trial=lambda trial: show(_progress_line(trial, trials)),
            say=lambda text: print(text, file=sys.stderr),
        )
    if folder is not None:
        _write(front, folder, template)
    print(front.to_json() if as_json else front)
    if not front.points:
        raise Exit(1)


def _progress_line(trial: Trial, trials: int) -> str:
    what = trial.reason or f"accuracy {trial.values['accuracy']:.3f}"
    return f"pair {trial.number + 1} of {trials}  {what}"


def _write(front: ModelFront, folder: Path, template: str) -> None:
    """Write the front, its page, and a folder for each of its pairs."""
    for point, pair in write_front(front, folder, "pair"):
        design = find_template(template).design(point.candidate["chip"])
        design.save(pair / "design.toml")

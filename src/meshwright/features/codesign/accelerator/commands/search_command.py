"""`meshwright accelerator search`: the best design for programs within caps."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import AsJson
from meshwright.errors import NoDesignError
from meshwright.features.codesign.accelerator.commands.options import TargetTexts
from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.features.codesign.accelerator.search.search import (
    FoundDesign,
    die_shrunk,
    search_design,
)
from meshwright.features.codesign.accelerator.search.worth import objective_of
from meshwright.features.codesign.accelerator.simulate.evaluate import evaluate_workload
from meshwright.features.codesign.accelerator.views.page import make_page
from meshwright.features.codesign.nas.searching.search_command import search_folder
from meshwright.search.trials import ENGINES, Trial


def search_command(  # noqa: PLR0913  an option each
    targets: TargetTexts,
    objective: Annotated[
        str, Option("--objective", help="perf/tdp, perf, energy or area")
    ] = "perf/tdp",
    area_mm2: Annotated[
        float | None, Option("--area-mm2", min=0, help="largest area of the die")
    ] = None,
    tdp_w: Annotated[
        float | None, Option("--tdp-w", min=0, help="largest peak power")
    ] = None,
    base: Annotated[
        str, Option("--base", help="design to compare with; default: TPU v3 at 7 nm")
    ] = "",
    trials: Annotated[int, Option("--trials", min=1, help="designs to try")] = 2000,
    engine: Annotated[
        str, Option("--engine", help=f"one of {', '.join(ENGINES)}")
    ] = "memetic",
    seed: Annotated[int, Option("--seed", min=0, help="random seed")] = 0,
    workers: Annotated[int, Option("--workers", min=0, help="processes")] = 0,
    out: Annotated[Path | None, Option("--out", help="folder for the design")] = None,
    resume: Annotated[
        Path | None, Option("--resume", help="folder of a search to go on with")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search datapaths, schedules and fusion for the best design for programs.

    Writes design.toml, page.html, trials.json and journal.jsonl. Exit status 0: a design
    was found, 1: none keeps the caps, 2: misuse.
    """
    objective_of(objective)
    folder = search_folder(out, resume)
    baseline = Design.load(base) if base else die_shrunk()
    with show_progress("searching") as show:
        try:
            found = search_design(
                targets,
                objective=objective,
                area_mm2=math.inf if area_mm2 is None else area_mm2,
                tdp_w=math.inf if tdp_w is None else tdp_w,
                base=baseline,
                engine=engine,
                trials=trials,
                seed=seed,
                journal=None if folder is None else folder / "journal.jsonl",
                workers=workers,
                on_trial=lambda trial: show(_progress_line(trial, trials)),
                say=lambda text: print(text, file=sys.stderr),
            )
        except NoDesignError as nothing:
            print(nothing, file=sys.stderr)
            raise Exit(1) from None
    if folder is not None:
        _write(found, folder)
    figures = {name: float(value) for name, value in found.trial.values.items()}
    if as_json:
        entries = {
            "figures": figures,
            "candidate": found.trial.candidate,
            "batches": found.batches,
        }
        print(json.dumps(entries, indent=1))
        return
    print(
        f"{baseline.name} at {baseline.chip.node_nm:g} nm: {baseline.area_mm2:.0f} mm2, "
        f"{baseline.tdp_w:.1f} W"
    )
    for name, value in figures.items():
        print(f"{name:13} {value:.4g}")
    if found.batches:
        print(f"{'batches':13} {', '.join(map(str, found.batches))}")
    print(found.design.to_toml())


def _progress_line(trial: Trial, trials: int) -> str:
    what = trial.reason or f"perf/tdp {trial.values['perf_per_tdp']:.3f}"
    return f"design {trial.number + 1} of {trials}  {what}"


def _write(found: FoundDesign, folder: Path) -> None:
    found.design.save(folder / "design.toml")
    (folder / "trials.json").write_text(found.front.to_json() + "\n", encoding="utf-8")
    workloads = list(found.workloads)
    for number, batch in enumerate(found.batches):
        name = f"{workloads[number].name}, {batch} at once"
        workloads[number] = replace(workloads[number], name=name)
    page = make_page([evaluate_workload(found.design, each) for each in workloads])
    (folder / "page.html").write_text(page, encoding="utf-8")

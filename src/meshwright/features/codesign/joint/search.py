"""`joint.search`: pairs of a model and an accelerator that no other dominates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from meshwright.errors import AcceleratorError, did_you_mean
from meshwright.features.codesign.joint.pair_figures import PairFigures
from meshwright.features.codesign.joint.templates import find_template
from meshwright.features.codesign.nas.searching.search import ModelFront
from meshwright.features.codesign.nas.searching.search import search as search_models
from meshwright.features.codesign.nas.searching.space_file import SpaceFile
from meshwright.search.trials import Candidate, Space, Trial, TrialEngine

OBJECTIVES: Mapping[str, str] = {
    "energy": "energy_j",
    "latency": "latency_s",
    "area": "area_mm2",
}
"""What is least beside the largest accuracy, by its name on the command line."""


def search(  # noqa: PLR0913  an option each
    space: str | SpaceFile,
    *,
    template: str = "edge",
    objective: str = "energy",
    latency_s: float = math.inf,
    area_mm2: float | None = None,
    least_accuracy: float | None = None,
    model: Candidate | None = None,
    chip: Candidate | None = None,
    first: Sequence[Candidate] = (),
    engine: str | TrialEngine | None = None,
    trials: int = 500,
    seed: int = 0,
    journal: str | PathLike[str] | None = None,
    workers: int = 0,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    say: Callable[[str], None] = lambda text: None,
) -> ModelFront:
    """The front of accuracy and an objective, over models and accelerators together.

    Where an accuracy is asked for, the best objective with at least that.

    space: path.py[:name], as for `nas.SpaceFile`, whose `evaluate` is a `nas.Trained`.
    area_mm2: largest area; that of the template's baseline if none is given.
    model, chip: a candidate that every pair has, for a search of the other half alone.
    first: models to try before all others on the known chip; the file's `baseline` if none
        is given.
    engine: by default `nsga2` for a front and `memetic` for one pair.
    """
    found = find_template(template)
    if objective not in OBJECTIVES:
        hint = did_you_mean(objective, OBJECTIVES)
        raise AcceleratorError(
            f"--objective is {objective!r:.60}{hint}; wanted one of {', '.join(OBJECTIVES)}"
        )
    file = SpaceFile(space) if isinstance(space, str) else space
    limit = found.baseline_design.area_mm2 if area_mm2 is None else area_mm2
    evaluate = PairFigures(file, template, latency_s, limit)
    models = file.space if model is None else Space(dict(model))
    chips = found.space if chip is None else Space(dict(chip))
    start = [
        {"model": each, "chip": chip or found.baseline}
        for each in ((first or file.first) if model is None else [model])
    ]
    limits = {"latency_s": latency_s, "area_mm2": limit}
    objectives = {"accuracy": "max", OBJECTIVES[objective]: "min"}
    constraints: dict[str, Any] = {
        n: most for n, most in limits.items() if most < math.inf
    }
    if least_accuracy is not None:
        del objectives["accuracy"]
        constraints["accuracy"] = (least_accuracy, None)
    return search_models(
        Space({"model": models, "chip": chips}),
        evaluate,
        objectives=objectives,
        constraints=constraints,
        engine=engine or ("nsga2" if least_accuracy is None else "memetic"),
        trials=trials,
        seed=seed,
        first=start,
        journal=journal,
        workers=workers,
        on_trial=on_trial,
        say=say,
    )

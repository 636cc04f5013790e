"""`nas.rewrite`: a search, its best models trained again, and a folder for each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from meshwright.app.output.files import make_folder, remove_folders
from meshwright.errors import NasError
from meshwright.features.codesign.nas.rewriting.judging import is_as_good, judge
from meshwright.features.codesign.nas.rewriting.lineages import (
    GOALS,
    LINEAGES,
    ORIGINAL,
    Lineages,
)
from meshwright.features.codesign.nas.rewriting.search import (
    RewriteProblem,
    cost_function,
)
from meshwright.features.codesign.nas.rewriting.source import arrays_of, source_of
from meshwright.features.codesign.nas.rewriting.task import Task
from meshwright.machine import Machine
from meshwright.plain import plain
from meshwright.search.trials import Study, Trial, run_trials

JOURNAL = "journal.jsonl"

_FILES = ("model.py", "weights.npz", "about.json")
"""Files of a model's folder."""


@dataclass(frozen=True, slots=True)
class RewrittenModel:
    """A model with what it costs, and how well it does over several seeds.

    flops: of one example. validation, test: mean scores. changes: each replacement.
    folder: where its source and weights are; "" if none was asked for.
    """

    cost: float
    flops: int
    parameters: int
    validation: float
    test: float
    changes: tuple[str, ...] = ()
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The models that a search found.

    less: the cost that was lowered. models: up to four that lose nothing, by cost.
    trials: networks that were trained in the search; failed: those of them that failed.
    judged: networks that were trained again, from other seeds.
    """

    less: str
    original: RewrittenModel
    models: tuple[RewrittenModel, ...]
    trials: int
    failed: int
    judged: int

    def to_json(self) -> str:
        """The record as JSON text."""
        return json.dumps(plain(self), indent=1)

    def __str__(self) -> str:
        lines = [_line("original", self.original, self.original)]
        lines += [
            _line(model.folder or f"model {i}", model, self.original)
            for i, model in enumerate(self.models)
        ]
        if not self.models:
            lines.append(
                f"no model with less {self.less} is as good in {self.trials} trials"
            )
        lines.append(f"{self.judged} of {self.trials} models were trained again")
        return "\n".join(lines)


def _line(name: str, model: RewrittenModel, original: RewrittenModel) -> str:
    def share(now: float, before: float) -> str:
        return f"{now:,.0f} ({now / before - 1:+.0%})"

    return (
        f"{name}: {share(model.flops, original.flops)} FLOPs, "
        f"{share(model.parameters, original.parameters)} parameters, "
        f"score {model.test:.4f} (validation {model.validation:.4f})"
    )


def rewrite(  # noqa: PLR0913  an option each
    task: Task,
    *,
    less: str = "flops",
    machine: Machine | str | Path | None = None,
    trials: int = 200,
    seed: int = 0,
    seeds: int = 3,
    out: str | PathLike[str] | None = None,
    method: str = "properties",
    on_trial: Callable[[Trial], None] = lambda trial: None,
    on_judged: Callable[[Trial], None] = lambda trial: None,
    say: Callable[[str], None] = lambda text: None,
) -> Rewriting:
    """Models that do as well as a task's and cost less, by subgraphs that are replaced.

    less: what there should be less of: "flops", "parameters", or "latency" on `machine`.
    trials: networks to train. seeds: trainings of each network that is not clearly worse
        after one, and other ones of the original and the best in the end.
    out: folder for the journal, from which a search goes on, and for the models.
    method: "properties", or an ablation, "enumeration" or "mutation".
    on_judged: gets the original and each network that is trained again in the end.
    say: gets remarks, such as on a line of the journal that was dropped.
    """
    if seeds < 1:
        raise NasError(f"seeds is {seeds}; wanted a whole number of 1 or more")
    folder = None if out is None else Path(out)
    problem = RewriteProblem(task, cost_function(less, machine), method, seed, seeds)
    if folder is not None:
        source_of(problem.original, "")  # fails before the search, not after it
    found = tried_rewrites(problem, trials, folder, on_trial=on_trial, say=say)
    judged = judge(problem, found, folder, on_judged=on_judged, say=say)
    return _result(problem, found, judged, less, folder)


def tried_rewrites(
    problem: RewriteProblem,
    trials: int,
    folder: Path | None,
    *,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    say: Callable[[str], None] = lambda text: None,
) -> Sequence[Trial]:
    """The original, and then `trials` networks of a search.

    With a folder a search goes on from its journal there; more trials are those of fewer
    trials and then others.
    """
    engine = Lineages(problem.method, problem.identity)
    found = run_trials(
        Study(LINEAGES, GOALS, engine, problem.seed, (ORIGINAL,)),
        problem.figures,
        trials=trials + 1,
        journal=folder and folder / JOURNAL,
        on_trial=on_trial,
        say=say,
    )
    if found.stopped == "interrupted":
        raise KeyboardInterrupt
    if not found.trials[0].is_feasible:
        raise NasError(f"the original does not train: {found.trials[0].reason}")
    return found.trials


def _result(
    problem: RewriteProblem,
    trials: Sequence[Trial],
    judged: Sequence[Trial],
    less: str,
    folder: Path | None,
) -> Rewriting:
    """The networks that are as good as the original, in folders of their own."""
    first, *rest = judged
    good = [trial for trial in rest if is_as_good(trial, first)]
    good.sort(key=lambda trial: trial.values["cost"])
    original = _model(problem, first)
    models = [_model(problem, trial) for trial in good]
    if folder is not None:
        original = _written(problem, first, folder / "original")
        models = [
            _written(problem, trial, folder / f"model_{number}")
            for number, trial in enumerate(good)
        ]
        kept = {folder / f"model_{number}" for number in range(len(models))}
        known = {p for p in folder.iterdir() if re.fullmatch(r"model_\d+", p.name)}
        remove_folders(known - kept, _FILES)
    failed = sum(bool(trial.reason) for trial in trials)
    found = Rewriting(less, original, tuple(models), len(trials) - 1, failed, len(rest))
    if folder is not None:
        (folder / "rewriting.json").write_text(found.to_json(), encoding="utf-8")
    return found


def _model(problem: RewriteProblem, judged: Trial, folder: str = "") -> RewrittenModel:
    """The record of a judged network."""
    network = problem.network(judged.candidate["draws"])
    return RewrittenModel(
        judged.values["cost"],
        network.flops,
        network.parameters,
        judged.values["validation"],
        judged.values["test"],
        network.changes,
        folder,
    )


def _written(problem: RewriteProblem, judged: Trial, folder: Path) -> RewrittenModel:
    """Write the folder of a model: `model.py`, `weights.npz` and `about.json`."""
    make_folder(folder, NasError)
    draws = judged.candidate["draws"]
    network, made = problem.network(draws), _model(problem, judged, str(folder))
    (trained,) = problem.trainings(draws, [problem.judging_seed])
    about = f"A model of {network.flops:,} FLOPs and {network.parameters:,} parameters."
    source = source_of(network, about)
    (folder / "model.py").write_text(source, encoding="utf-8")
    np.savez(folder / "weights.npz", **arrays_of(network, trained.weights))  # pyright: ignore[reportArgumentType]
    (folder / "about.json").write_text(json.dumps(plain(made), indent=1), "utf-8")
    return made

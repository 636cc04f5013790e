"""`meshwright nas search`: the front of a space of models, as files."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from meshwright.app.output.files import make_folder, remove_folders
from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import AsJson
from meshwright.errors import SearchError
from meshwright.features.codesign.nas.searching.proxies import rank_correlations
from meshwright.features.codesign.nas.searching.search import ModelFront, search
from meshwright.features.codesign.nas.searching.space_file import SpaceFile
from meshwright.features.codesign.nas.searching.trained import Trained
from meshwright.machine import load_machine
from meshwright.search.trials import ENGINES, Trial

_SpaceText = Annotated[
    str,
    Argument(
        metavar="SPACE", help="path.py[:name], a function that returns a nas.Space"
    ),
]
_MachineName = Annotated[
    str, Option("--machine", help="machine of the latency, a preset or TOML file")
]
_TargetMs = Annotated[
    float | None,
    Option("--target-ms", min=0, help="latency that a chosen model must keep"),
]
_Trials = Annotated[int, Option("--trials", min=1, help="candidates to try")]
_Engine = Annotated[str, Option("--engine", help=f"one of {', '.join(ENGINES)}")]
_Seed = Annotated[int, Option("--seed", min=0, max=2**31 - 1, help="random seed")]
_Workers = Annotated[int, Option("--workers", min=0, help="processes; 0 for none")]
_TrialSeconds = Annotated[
    float | None, Option("--trial-seconds", help="limit on the time of a trial")
]
_Out = Annotated[
    Path | None, Option("--out", help="folder for the front and its models")
]
_Resume = Annotated[
    Path | None,
    Option("--resume", help="folder of a search that was ended, to go on with"),
]


def search_command(  # noqa: PLR0913  an option each
    space: _SpaceText,
    machine: _MachineName,
    target_ms: _TargetMs = None,
    trials: _Trials = 100,
    engine: _Engine = "nsga2",
    seed: _Seed = 0,
    workers: _Workers = 0,
    trial_seconds: _TrialSeconds = None,
    out: _Out = None,
    resume: _Resume = None,
    as_json: AsJson = False,
) -> None:
    """Search a space of models for accuracy, and latency on a machine.

    Writes front.json, front.html, journal.jsonl and a folder for each model of the front.
    Exit status 0: a model was found, 1: none is feasible or keeps the target, 2: misuse.
    """
    load_machine(machine, None)
    folder = search_folder(out, resume)
    with show_progress(f"loading {space}"):
        file = SpaceFile(space, machine)
        first = file.first
    with show_progress("searching") as show:
        front = search(
            file.space,
            file,
            objectives={"accuracy": "max", "latency_s": "min"},
            engine=engine,
            trials=trials,
            seed=seed,
            first=first,
            journal=None if folder is None else folder / "journal.jsonl",
            workers=workers,
            trial_seconds=trial_seconds,
            on_trial=lambda trial: show(_progress_line(trial, trials)),
            say=lambda text: print(text, file=sys.stderr),
        )
    chosen = _chosen(front, target_ms)
    if folder is not None:
        _write(front, folder, file)
    print(front.to_json() if as_json else _summary(front, chosen))
    if chosen is None:
        raise Exit(1)


def search_folder(out: Path | None, resume: Path | None) -> Path | None:
    """The folder of the search; fails if it has another search's journal already.

    A folder to resume may be empty, as that of a search that was killed at its beginning.
    """
    folder = resume or out
    if None not in (out, resume) and out != resume:
        raise SearchError(
            f"--out {out} and --resume {resume} name two folders; give one of them"
        )
    if resume is not None and not (resume / "journal.jsonl").is_file():
        if not resume.is_dir() or any(resume.iterdir()):
            raise SearchError(
                f"--resume {resume} has no journal.jsonl; begin with --out {resume}"
            )
    elif resume is None and out is not None and (out / "journal.jsonl").exists():
        raise SearchError(
            f"{out} has the journal of a search; go on with --resume {out}"
        )
    if folder is not None:
        make_folder(folder, SearchError)
    return folder


def _progress_line(trial: Trial, trials: int) -> str:
    what = trial.reason or f"accuracy {trial.values['accuracy']:.3f}"
    return f"trial {trial.number + 1} of {trials}  {what}"


def _chosen(front: ModelFront, target_ms: float | None) -> Trial | None:
    """The most accurate model that keeps the target; `None` if there is none."""
    try:
        limits = {} if target_ms is None else {"latency_s": target_ms / 1e3}
        return front.best(**limits)
    except SearchError as nothing:
        print(nothing, file=sys.stderr)
        return None


def _summary(front: ModelFront, chosen: Trial | None) -> str:
    lines = str(front).splitlines()
    if chosen is not None:
        ms = 1e3 * chosen.values["latency_s"]
        what = f"accuracy {chosen.values['accuracy']:.4f}, {ms:.4g} ms"
        lines.append(f"chosen: trial {chosen.number}, {what}")
    names = (*front.proxies, "parameters", "macs")
    taus = rank_correlations(front.front.trials, "accuracy", names)
    if taus:
        shown = ", ".join(f"{name} {tau:.2f}" for name, tau in taus.items())
        lines.append(f"Kendall's tau with accuracy: {shown}")
    return "\n".join(lines)


def _write(front: ModelFront, folder: Path, file: SpaceFile) -> None:
    """Write the front, its page, and a folder for each of its models."""
    for _, model in write_front(front, folder, "model"):
        if isinstance(file.evaluate, Trained) and file.path.suffix == ".py":
            (model / "model.py").write_text(_target_of(file), encoding="utf-8")


def write_front(front: ModelFront, folder: Path, kind: str) -> list[tuple[Trial, Path]]:
    """Write a front and its page, and each point's candidate and figures to a folder.

    kind: of a point, in the name of its folder. Returns the points with their folders.
    Those of an earlier front of this search that are no points any more are removed.
    """
    places = [(each, folder / f"{kind}-{each.number:05d}") for each in front.points]
    (folder / "front.json").write_text(front.to_json() + "\n", encoding="utf-8")
    front.report(folder / "front.html")
    for point, place in places:
        place.mkdir(exist_ok=True)
        for name, data in (("candidate", point.candidate), ("figures", point.values)):
            text = json.dumps(data, indent=2)
            (place / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    kept = {place for _, place in places}
    numbered = re.compile(rf"{kind}-\d{{5,}}")
    known = {place for place in folder.iterdir() if numbered.fullmatch(place.name)}
    remove_folders(known - kept, _FILES)
    return places


_FILES = ("candidate.json", "figures.json", "model.py", "design.toml")
"""Files of a point's folder."""


_TARGET = """\
\"\"\"A model that a search found, as a target: its function and arguments.\"\"\"

import json
import re
from pathlib import Path

from meshwright.codesign import nas

CANDIDATE = Path(__file__).with_name("candidate.json")


def target():
    candidate = json.loads(CANDIDATE.read_text(encoding="utf-8"))
    return nas.SpaceFile(SPACE).evaluate.target(candidate)
"""


def _target_of(file: SpaceFile) -> str:
    """A module with the target of a model, for `meshwright plan` and others."""
    space = f"{file.path.resolve()}{file.text.removeprefix(str(file.path))}"
    return _TARGET.replace("SPACE", repr(space))

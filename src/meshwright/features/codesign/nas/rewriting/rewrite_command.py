"""`meshwright nas rewrite`: subgraphs of a model replaced by cheaper ones."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from meshwright.app.output.progress import show_progress
from meshwright.app.step.load_module import describe_error, user_code
from meshwright.cli.arguments.options import AsJson
from meshwright.cli.arguments.target import find_target
from meshwright.errors import MeshwrightError, NasError, TargetError
from meshwright.features.codesign.nas.rewriting.rewrite import JOURNAL, rewrite
from meshwright.features.codesign.nas.rewriting.task import Task
from meshwright.search.trials import Trial

_TaskText = Annotated[
    str,
    Argument(
        metavar="TARGET",
        help="path.py[:name] or pkg.module:name, a function that returns a nas.Task",
    ),
]
_Keep = Annotated[str, Option(help="what must not fall: accuracy, the task's score")]
_Less = Annotated[str, Option(help="what should fall: flops, parameters or latency")]
_MachineName = Annotated[
    str | None, Option("--machine", help="for latency: a preset or a TOML file")
]
_Trials = Annotated[int, Option(min=1, help="networks to train")]
_Seed = Annotated[int, Option(min=0, max=2**31 - 1, help="random seed of the search")]
_Out = Annotated[
    Path | None, Option(help="new folder for the journal and the models that are found")
]
_Resume = Annotated[
    Path | None, Option(help="folder of a search that was ended, to go on with")
]
_Method = Annotated[
    str, Option(help="properties, or an ablation: enumeration or mutation")
]


def rewrite_command(  # noqa: PLR0913  an option each
    target: _TaskText,
    keep: _Keep = "accuracy",
    less: _Less = "flops",
    machine: _MachineName = None,
    trials: _Trials = 200,
    seed: _Seed = 0,
    out: _Out = None,
    resume: _Resume = None,
    method: _Method = "properties",
    as_json: AsJson = False,
) -> None:
    """Replace subgraphs of a model by cheaper ones with the same properties.

    Prints the models that are as good as the original over three seeds and cost less. Exit
    status 0: there are some, 1: none was found, 2: misuse.
    """
    if keep != "accuracy":
        raise NasError(f"--keep is {keep!r}; wanted accuracy")
    folder = _folder(out, resume)
    with show_progress(f"loading {target}"):
        task = _task_of(target)
    with show_progress("rewriting") as show:
        found = rewrite(
            task,
            less=less,
            machine=machine,
            trials=trials,
            seed=seed,
            out=folder,
            method=method,
            on_trial=lambda trial: show(f"{_progress_line(trial)}  (of {trials})"),
            on_judged=lambda trial: show(f"trained again: {_judged_line(trial)}"),
            say=lambda text: print(text, file=sys.stderr),
        )
    print(found.to_json() if as_json else found)
    if not found.models:
        raise typer.Exit(1)


def _progress_line(trial: Trial) -> str:
    if trial.reason:
        return f"trial {trial.number}  {trial.reason}"
    score, cost = trial.values["score"], trial.values["cost"]
    return f"trial {trial.number}  score {score:.4f}  cost {cost:.3g}"


def _judged_line(trial: Trial) -> str:
    name = f"model {trial.number}" if trial.number else "the original"
    if trial.reason:
        return f"{name}  {trial.reason}"
    score, cost = trial.values["validation"], trial.values["cost"]
    return f"{name}  score {score:.4f}  cost {cost:.3g}"


def _folder(out: Path | None, resume: Path | None) -> Path | None:
    """The folder to write; a search is not mixed with another one by accident."""
    if resume is not None:
        if out is not None and out != resume:
            raise NasError("--out and --resume name two folders; give one of them")
        if not (resume / JOURNAL).is_file():
            raise NasError(f"--resume {resume} has no {JOURNAL}; start with --out")
        return resume
    if out is not None and (out / JOURNAL).exists():
        what = f"--out {out} has a search already"
        raise NasError(f"{what}; go on with --resume {out}, or give a new folder")
    return out


def _task_of(text: str) -> Task:
    """The task that a target returns."""
    target = find_target(text)
    try:
        with user_code():
            task = target.make()
    except MeshwrightError:
        raise
    except (Exception, SystemExit) as error:
        raise TargetError(f"{text} failed: {describe_error(error)}") from error
    if not isinstance(task, Task):
        raise TargetError(f"{text} returned a {type(task).__name__}; wanted a nas.Task")
    return task

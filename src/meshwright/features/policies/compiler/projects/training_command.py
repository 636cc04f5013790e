"""`meshwright policies train`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from meshwright.app.output.progress import show_progress
from meshwright.app.output.table import Table
from meshwright.cli.arguments.options import AsJson, make_console
from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit, read_corpus
from meshwright.features.policies.compiler.learned.fitting import TransferPoint
from meshwright.features.policies.compiler.learned.train import (
    ProjectSize,
    TrainingPlan,
    train_inlining,
)
from meshwright.features.policies.compiler.projects.tuning_command import ClangName


def train_command(  # noqa: PLR0913  the options of a command
    kind: Annotated[str, Argument(help="what to decide: inline")],
    corpus: Annotated[Path, Option(help="folder that `policies corpus` wrote")],
    out: Annotated[Path, Option(help="folder for the policy; resumes")],
    held_out: Annotated[
        str, Option(help="projects to measure the policy on, a,b; else one in four")
    ] = "",
    decisions: Annotated[
        Path | None, Option(help="folder of `policies tune`, to measure less again")
    ] = None,
    rounds: Annotated[
        int, Option(min=0, help="rounds in which the policy's own decisions teach")
    ] = 1,
    seconds: Annotated[float, Option(min=1, help="time for measuring")] = 3600,
    workers: Annotated[int, Option(min=1, help="compilations at once")] = 2,
    seed: Annotated[int, Option(min=0, help="of the order of projects")] = 0,
    clang: ClangName = None,
    as_json: AsJson = False,
) -> None:
    """Train a policy of inlining on a corpus, and measure it on projects left out."""
    if kind != "inline":
        raise PolicyError(f"what to train is {kind!r}; wanted inline")
    units = read_corpus(corpus)
    names = [name.strip() for name in held_out.split(",") if name.strip()]
    plan = TrainingPlan(
        frozenset(names or _every_fourth(units)),
        seconds,
        decisions,
        rounds,
        workers,
        seed,
    )
    with ClangCompiler(clang) as compiler, show_progress("training") as show:
        trained = train_inlining(units, compiler, out, plan, show)
    if as_json:
        print((out / "report.json").read_text())
        return
    console = make_console()
    console.print(_curve_table(trained.curve))
    if trained.sizes:
        console.print(_size_table(trained.sizes))
    if trained.skipped:
        print(f"{len(trained.skipped)} units taught nothing: {trained.skipped[0]}")


def _every_fourth(units: Sequence[Unit]) -> list[str]:
    """A quarter of the projects, by their names."""
    return sorted({unit.project for unit in units})[3::4]


def _curve_table(curve: Sequence[TransferPoint]) -> Table:
    rows = [
        (
            f"{point.projects}",
            f"{point.decisions:,}",
            f"{point.saved:.2%}",
            f"{point.possible:.2%}",
        )
        for point in curve
    ]
    titles = (">projects", ">decisions", ">saved on others", ">by known flips")
    return Table(titles, tuple(rows))


def _size_table(sizes: Sequence[ProjectSize]) -> Table:
    rows = [
        (
            each.project,
            f"{each.units}",
            f"{each.default_bytes:,}",
            f"{each.policy_bytes:,}",
            f"{each.policy_bytes / max(1, each.default_bytes) - 1:+.2%}",
            f"{each.worst_unit:+.2%}",
        )
        for each in sizes
    ]
    titles = ("held out", ">units", ">default", ">policy", ">change", ">worst unit")
    return Table(titles, tuple(rows))

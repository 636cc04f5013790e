"""`meshwright policies train`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from meshwright.app.output.progress import show_progress
from meshwright.app.output.table import Table
from meshwright.cli.arguments.options import AsJson, make_console
from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.allocation.cost_change import CostChange
from meshwright.features.policies.compiler.allocation.journal import EvolutionPoint
from meshwright.features.policies.compiler.allocation.policies import AllocationPolicy
from meshwright.features.policies.compiler.allocation.train import (
    AllocationPlan,
    AllocationTraining,
    train_allocation,
)
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit, read_corpus
from meshwright.features.policies.compiler.learned.fitting import TransferPoint
from meshwright.features.policies.compiler.learned.inline_policy import InlinePolicy
from meshwright.features.policies.compiler.learned.policy_file import read_policy
from meshwright.features.policies.compiler.learned.train import (
    ProjectSize,
    TrainingPlan,
    train_inlining,
)
from meshwright.features.policies.compiler.projects.tuning_command import ClangName


def train_command(  # noqa: PLR0913  the options of a command
    kind: Annotated[str, Argument(help="what to decide: inline, evict or priority")],
    corpus: Annotated[Path, Option(help="folder that `policies corpus` wrote")],
    out: Annotated[Path, Option(help="folder for the policy; resumes")],
    held_out: Annotated[
        str, Option(help="projects to measure the policy on, a,b; else one in four")
    ] = "",
    decisions: Annotated[
        Path | None, Option(help="inline: folder of `policies tune`, to measure less")
    ] = None,
    rounds: Annotated[
        int, Option(min=0, help="inline: rounds in which the policy's decisions teach")
    ] = 1,
    steps: Annotated[
        int, Option(min=0, help="evict, priority: steps of the evolution strategy")
    ] = 60,
    start: Annotated[
        Path | None,
        Option(help="evict, priority: policy where training starts; else clang's rule"),
    ] = None,
    seconds: Annotated[float, Option(min=1, help="time for measuring")] = 3600,
    workers: Annotated[int, Option(min=1, help="compilations at once")] = 2,
    seed: Annotated[int, Option(min=0, help="of orders and perturbations")] = 0,
    clang: ClangName = None,
    as_json: AsJson = False,
) -> None:
    """Train a policy of inlining or register allocation; measure it on projects left out.

    evict: which live range loses its register. priority: which one gets its register first.
    """
    if kind not in ("inline", "evict", "priority"):
        raise PolicyError(
            f"what to train is {kind!r}; wanted inline, evict or priority"
        )
    units = read_corpus(corpus)
    first = None if start is None else _first_policy(kind, start)
    names = [name.strip() for name in held_out.split(",") if name.strip()]
    others = frozenset(names or _every_fourth(units))
    console = make_console()
    with ClangCompiler(clang) as compiler, show_progress("training") as show:
        if kind == "inline":
            plan = TrainingPlan(others, seconds, decisions, rounds, workers, seed)
            trained = train_inlining(units, compiler, out, plan, show)
            tables = [_curve_table(trained.curve)]
            tables += [_size_table(trained.sizes)] if trained.sizes else []
            remarks: list[str] = []
        else:
            plan = AllocationPlan(
                kind, others, seconds, steps, workers=workers, seed=seed, start=first
            )
            trained = train_allocation(units, compiler, out, plan, show)
            tables = [_steps_table(trained.curve), _cost_table(trained)]
            remarks = _remarks(trained)
    if as_json:
        print((out / "report.json").read_text())
        return
    for table in tables:
        console.print(table)
    for remark in remarks:
        print(remark)
    if trained.skipped:
        print(f"{len(trained.skipped)} units taught nothing: {trained.skipped[0]}")


def _first_policy(kind: str, path: Path) -> AllocationPolicy:
    """The policy where a training starts."""
    if kind == "inline":
        raise PolicyError("--start names a policy of evict or priority to go on from")
    policy = read_policy(path)
    if isinstance(policy, InlinePolicy) or policy.kind != kind:
        raise PolicyError(f"{path} has a policy of {policy.kind}; wanted one of {kind}")
    return policy


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


_ROWS = 12
"""Points of a learning curve that are printed; the report has all."""


def _steps_table(curve: Sequence[EvolutionPoint]) -> Table:
    every = max(1, -(-len(curve) // _ROWS))
    rows = [
        (
            f"{point.step + 1}",
            f"{point.functions}",
            f"{point.change:+.2%}",
            f"{point.operations:+.2%}",
        )
        for place, point in enumerate(curve)
        if (len(curve) - 1 - place) % every == 0
    ]
    titles = (">step", ">functions", ">spill code, perturbed", ">operations")
    return Table(titles, tuple(rows))


def _cost_table(trained: AllocationTraining) -> Table:
    found = {"(taught)": trained.taught, **trained.held_out}
    rows = [
        (
            name,
            f"{changes.cycles.functions}",
            _mean(changes.cycles),
            _mean(changes.operations),
            f"{changes.kept_cycles.mean:+.2%}",
            f"{changes.kept_operations.mean:+.2%}",
        )
        for name, changes in found.items()
    ]
    titles = (
        "held out",
        ">functions",
        ">spill code (95 %)",
        ">operations (95 %)",
        ">built, spill code",
        ">operations",
    )
    return Table(titles, tuple(rows))


def _mean(change: CostChange) -> str:
    return f"{change.mean:+.2%} ({change.low:+.2%} to {change.high:+.2%})"


def _remarks(trained: AllocationTraining) -> list[str]:
    """What a reader has to know besides the tables."""
    remarks: list[str] = []
    if not trained.is_complete:
        remarks.append("time ended before the last step: run it again to go on")
    if not trained.is_corrected:
        remarks.append(
            "what was learned does not make spill code and operations less on functions"
            " that taught: the policy is the compiler's own rule"
        )
    return remarks

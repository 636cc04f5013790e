"""`meshwright floorplan train`: a policy that places macros, learned from the proxy."""

import json
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import AsJson
from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.netlist.frame import frame_of
from meshwright.features.codesign.floorplan.netlist.netlist import read
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.policy.shipped import shipped_policy
from meshwright.features.codesign.floorplan.policy.training import (
    PlacerTraining,
    TrainingPoint,
    read_floorplan_policy,
    train,
)
from meshwright.learn.ppo import Policy

SHIPPED = "shipped"
"""Name of the policy that is shipped."""


def train_command(  # noqa: PLR0913  an option each
    netlists: Annotated[
        list[Path],
        Argument(
            metavar="NETLISTS",
            help="netlists, or folders of them; each with initial.plc beside it, if any",
        ),
    ],
    steps: Annotated[
        int, Option("--steps", min=1, help="environment steps, one macro each")
    ] = 200_000,
    workers: Annotated[
        int, Option("--workers", min=1, help="threads that play episodes")
    ] = 2,
    out: Annotated[
        Path, Option("--out", help="folder of the policy; a training there goes on")
    ] = Path("policy"),
    policy: Annotated[
        str | None,
        Option(
            help=f"policy to begin with: a folder, a file, or '{SHIPPED}'; default: an "
            "untrained one"
        ),
    ] = None,
    seed: Annotated[
        int, Option("--seed", min=0, max=2**31 - 1, help="random seed")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Train a policy that places macros one by one, on one netlist or on several in turn.

    The policy is saved every few seconds. After an interruption the same command goes on.
    """
    files = [file for path in netlists for file in _netlists_in(path)]
    chips = _read_chips(files)
    with show_progress("training") as show:
        trained = train(
            chips,
            steps=steps,
            workers=workers,
            seed=seed,
            start=None if policy is None else _start(policy),
            folder=out,
            progress=lambda point: show(_progress_line(point)),
        )
    if as_json:
        print(json.dumps(_facts(trained, out)))
    else:
        print(trained.table())
        print(f"policy in {out}" + (", interrupted" if trained.is_interrupted else ""))


def _netlists_in(path: Path) -> list[Path]:
    """The netlist itself, or all netlists in a folder and the folders in it."""
    if not path.is_dir():
        return [path]
    files = sorted({*path.rglob("[!.]*.pb.txt"), *path.rglob("[!.]*.pb.txt.gz")})
    if not files:
        raise FloorplanError(f"{path} holds no netlist (*.pb.txt, *.pb.txt.gz)")
    return files


def _read_chips(files: list[Path]) -> dict[str, ChipPlacement]:
    """Canvas and fixed blocks of each netlist, by its path."""
    return {str(file): frame_of(read(file)) for file in dict.fromkeys(files)}


def _start(name: str) -> Policy:
    return shipped_policy() if name == SHIPPED else read_floorplan_policy(Path(name))


def _progress_line(point: TrainingPoint) -> str:
    return (
        f"{point.seconds:.0f} s  {point.steps} steps  {point.chip}  reward "
        f"{point.reward:.4f} (random {point.random:.4f}, best {point.best:.4f})"
    )


def _facts(trained: PlacerTraining, out: Path) -> dict[str, object]:
    """The way of a training as plain data."""
    return {
        "out": str(out),
        "interrupted": trained.is_interrupted,
        "curve": [point._asdict() for point in trained.curve],
    }

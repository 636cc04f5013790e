"""`meshwright accelerator log`: simulate designs of a space, as a data set."""

import math
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Annotated

from typer import Option

from meshwright.app.output.progress import show_progress
from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.commands.options import (
    OutFolder,
    TargetTexts,
    workloads_of,
)
from meshwright.features.codesign.accelerator.logs.application import (
    describe_application,
    read_application,
    write_application,
)
from meshwright.features.codesign.accelerator.logs.write_logs import write_log
from meshwright.features.codesign.accelerator.workload.layers import Workload


def log_command(
    targets: TargetTexts,
    out: OutFolder,
    designs: Annotated[int, Option(min=1, help="rows of each log")] = 50000,
    space: Annotated[str, Option(help="the space of designs: prime")] = "prime",
    seed: Annotated[int, Option(help="of the random designs")] = 0,
) -> None:
    """Simulate random designs for programs, feasible or not.

    Each program gets a CSV file, and a JSON file of figures that describe it, by which
    `learn` knows it. A log that was cut is continued by the same command.
    """
    if space != "prime":
        raise AcceleratorError(f"--space is {space!r}; there is prime")
    out.mkdir(parents=True, exist_ok=True)
    names = [_file_name(text) for text in targets]
    for name, number in Counter(names).items():
        if number > 1:
            raise AcceleratorError(
                f"{number} programs would share {out / name}.csv; log them to one folder "
                "under different names, or to several"
            )
    for workload in workloads_of(targets):
        path = out / f"{_file_name(workload.name)}.csv"
        _describe(path, workload)
        with show_progress(f"{workload.name}: {designs} designs") as show:
            done = count(1)
            feasible = write_log(
                path, workload, designs, seed,
                on_design=lambda _: show(f"{next(done)} more"),  # noqa: B023
            )  # fmt: skip
        print(f"{path}: {designs} designs, {feasible} feasible")


def _describe(path: Path, workload: Workload) -> None:
    """Write the figures beside a log; fails if the log is of another program."""
    figures, place = describe_application(workload), path.with_suffix(".json")
    if path.exists() and place.exists():
        known = read_application(place)
        if known.keys() != figures.keys() or not all(
            math.isclose(known[name], figures[name], rel_tol=1e-9) for name in known
        ):
            raise AcceleratorError(
                f"{path} is the log of another program than {workload.name}; give "
                "another --out, or remove it"
            )
    write_application(place, figures)


def _file_name(target: str) -> str:
    """The name of a target's log: the part after the colon, or the file's stem."""
    place, _, name = target.rpartition(":")
    return name if place else target.removesuffix(".py").rpartition("/")[2]

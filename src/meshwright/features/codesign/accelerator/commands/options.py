"""Arguments that commands below `meshwright accelerator` share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.target import find_target
from meshwright.features.codesign.accelerator.workload.layers import (
    Workload,
    workload_of,
)
from meshwright.features.codesign.nas.cost.latency_command import made_with

DesignText = Annotated[
    str,
    Argument(
        metavar="DESIGN", help="TOML with a table accelerator, or a preset: tpu-v4i"
    ),
]
TargetTexts = Annotated[
    list[str],
    Argument(
        metavar="TARGET...",
        help="path.py[:name] or pkg.module:name; of its `inference` forms if it has any",
    ),
]
OutFolder = Annotated[Path, Option("--out", help="folder for what is found")]


def workloads_of(targets: list[str], batch: int | None = None) -> list[Workload]:
    """The layers of each target, for calls of `batch` examples if that is given."""
    found: list[Workload] = []
    for text in targets:
        with show_progress(f"tracing {text}"):
            target = find_target(text, is_inference=True)
            fn, args = made_with(target, {"batch": batch})
            found.append(workload_of(fn, args, text))
    return found

"""Arguments that commands below `meshwright accelerator` share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.target import find_target
from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.search.programs import TracedTargets
from meshwright.features.codesign.accelerator.workload.layers import (
    Workload,
    workload_of,
)

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


BatchSize = Annotated[
    int | None, Option("--batch", min=1, help="examples of a call, if targets take it")
]


def workloads_of(targets: list[str], batch: int | None = None) -> list[Workload]:
    """The layers of each target, for calls of `batch` examples if that is given."""
    found: list[Workload] = []
    for text in targets:
        with show_progress(f"tracing {text}"):
            if batch is None:
                target = find_target(text, is_inference=True)
                found.append(workload_of(target.fn, target.args, text))
                continue
            traced = TracedTargets((text,))
            if not traced.has_batch:
                raise AcceleratorError(
                    f"{text} takes no batch; leave out --batch, or write the target as "
                    "a function with a default, such as `def target(batch=8)`"
                )
            found += traced.at(batch)
    return found

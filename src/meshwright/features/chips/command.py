"""`meshwright chips`: assign the ops of a program to the chips of a multi-chip module."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import AsJson, TargetText
from meshwright.cli.arguments.target import find_target
from meshwright.errors import ChipsError
from meshwright.features.chips.chip_partition import ChipPartition
from meshwright.features.chips.partition_chips import partition_chips
from meshwright.features.chips.problem.chip_module import module_machine
from meshwright.features.chips.solve import ChipProgress, OnChipProgress

_ModuleName = Annotated[
    str,
    typer.Option("--machine", help="the module: mcm-36, or another preset or file"),
]
_NumChips = Annotated[
    int | None, typer.Option("--chips", help="chips, if not all of the module")
]
_WeightPatterns = Annotated[
    list[str] | None,
    typer.Option("--weights", help="patterns of inputs that stay the same"),
]
_Seconds = Annotated[float, typer.Option("--seconds", help="most seconds to search")]
_Seed = Annotated[int, typer.Option("--seed", min=0, max=2**31 - 1, help="random seed")]
_ResultFile = Annotated[
    Path | None,
    typer.Option("--out", help="file for the result: .csv, .json, .svg or .html"),
]
_PageFile = Annotated[
    Path | None, typer.Option("--html", help="file for a page with the picture")
]


def chips_command(  # noqa: PLR0913  an option each
    target: TargetText,
    machine: _ModuleName = "mcm-36",
    chips: _NumChips = None,
    weights: _WeightPatterns = None,
    seconds: _Seconds = 60.0,
    seed: _Seed = 0,
    out: _ResultFile = None,
    html: _PageFile = None,
    as_json: AsJson = False,
) -> None:
    """Place the ops of a program on the chips of a module, as a pipeline.

    Prints throughput, bottleneck and memory. Exit status 0: a partition was found, 2:
    misuse, or no chip's memory suffices.
    """
    for path in (out, html):
        if path is not None and not path.parent.is_dir():
            raise ChipsError(f"{path}: there is no folder {path.parent}")
        if path is not None and path.is_dir():
            raise ChipsError(f"{path} is a folder: give the name of a file")
    placed = module_machine(machine, chips)
    with show_progress(f"loading {target}"):
        found = find_target(target)
        fn, args = found.made
    console = Console(stderr=True)
    with console.status("capturing") as status:
        answer = partition_chips(
            fn,
            placed,
            *args,
            weights=weights or "*params*",
            seconds=seconds,
            seed=seed,
            progress=_show_progress_on(console, status),
        )
    print(answer.to_json() if as_json else answer)
    for path, ending in ((out, None), (html, ".html")):
        if path is not None:
            _write(answer, path, ending or path.suffix)


def _show_progress_on(console: Console, status: Status) -> OnChipProgress:
    """A callback that updates a line on a terminal, or logs one line a second."""
    printed_s = -1.0

    def show(progress: ChipProgress) -> None:
        nonlocal printed_s
        line = (
            f"{progress.seconds:.1f} s  {progress.method}  {progress.evaluations} "
            f"partitions  best {progress.bottleneck_s:.3e} s"
        )
        if console.is_terminal:
            status.update(line)
        elif progress.seconds > printed_s + 1:
            printed_s = progress.seconds
            console.print(line, highlight=False, soft_wrap=True)

    return show


def _write(answer: ChipPartition, path: Path, ending: str) -> None:
    """Write the answer as JSON, HTML or CSV, by the ending of the file's name."""
    if ending in (".html", ".htm"):
        answer.report(path)
        return
    formats = {".json": answer.to_json, ".svg": answer.svg}
    path.write_text(formats.get(ending, answer.to_csv)(), encoding="utf-8")

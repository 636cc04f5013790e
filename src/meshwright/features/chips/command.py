"""`meshwright chips`: assign the ops of a program to the chips of a multi-chip module."""

from pathlib import Path
from typing import Annotated

from typer import Option

from meshwright.app.output.files import output_file
from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import AsJson, TargetText
from meshwright.cli.arguments.target import find_target
from meshwright.features.chips.chip_partition import ChipPartition
from meshwright.features.chips.partition_chips import partition_chips
from meshwright.features.chips.problem.chip_module import module_machine
from meshwright.features.chips.solve import ChipProgress

_ModuleName = Annotated[
    str, Option("--machine", help="the module: mcm-36, or another preset or file")
]
_NumChips = Annotated[
    int | None, Option("--chips", help="chips, if not all of the module")
]
_WeightPatterns = Annotated[
    list[str] | None, Option("--weights", help="patterns of inputs that stay the same")
]
_Seconds = Annotated[float, Option("--seconds", help="most CPU seconds to search")]
_Seed = Annotated[int, Option("--seed", min=0, max=2**31 - 1, help="random seed")]
_ResultFile = Annotated[
    Path | None, Option("--out", help="file for the result: .csv, .json, .svg or .html")
]
_PageFile = Annotated[
    Path | None, Option("--html", help="file for a page with the picture")
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
        if path is not None:
            output_file(path)
    placed = module_machine(machine, chips)
    with show_progress(f"loading {target}"):
        found = find_target(target)
        fn, args = found.made
    with show_progress("partitioning") as show:
        answer = partition_chips(
            fn,
            placed,
            *args,
            weights=weights or "*params*",
            seconds=seconds,
            seed=seed,
            progress=lambda progress: show(_progress_line(progress)),
        )
    print(answer.to_json() if as_json else answer)
    for path, ending in ((out, None), (html, ".html")):
        if path is not None:
            _write(answer, path, ending or path.suffix)


def _progress_line(progress: ChipProgress) -> str:
    return (
        f"{progress.seconds:.1f} s  {progress.method}  {progress.evaluations} "
        f"partitions  best {progress.bottleneck_s:.3e} s"
    )


def _write(answer: ChipPartition, path: Path, ending: str) -> None:
    """Write the answer as JSON, HTML or CSV, by the ending of the file's name."""
    if ending in (".html", ".htm"):
        answer.report(path)
        return
    formats = {".json": answer.to_json, ".svg": answer.svg}
    path.write_text(formats.get(ending, answer.to_csv)(), encoding="utf-8")

"""`meshwright chips`: the ops of a program on the chips of a multi-chip module."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from meshwright.app.chips import partition_chips
from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import AsJson, TargetText
from meshwright.cli.arguments.target import find_target
from meshwright.errors import ChipsError
from meshwright.planner.chips.chip_partition import ChipPartition
from meshwright.planner.chips.problem.chip_module import module_machine
from meshwright.planner.chips.solve import ChipProgress


def chips_command(  # noqa: PLR0913  an option each
    target: TargetText,
    machine: Annotated[
        str,
        typer.Option("--machine", help="the module: mcm-36, or another preset or file"),
    ] = "mcm-36",
    chips: Annotated[
        int | None, typer.Option("--chips", help="chips, if not all of the module")
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option("--weights", help="patterns of inputs that stay the same"),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", help="most seconds to search")
    ] = 60.0,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**31 - 1, help="random seed")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="file for the result: .csv, .json, .svg or .html"),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="file for a page with the picture")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Place the ops of a program on the chips of a module, as a pipeline.

    Prints throughput, bottleneck and memory. Exit status 0: a partition was found, 2:
    misuse, or no chip's memory suffices.
    """
    for path in (out, html):
        if path is not None and not path.parent.is_dir():
            raise ChipsError(f"{path}: there is no folder {path.parent}")
    placed = module_machine(machine, chips)
    with show_progress(f"loading {target}"):
        found = find_target(target)
        fn, args = found.made
    console, printed_s = Console(stderr=True), [-1.0]
    with console.status("capturing") as status:

        def show(progress: ChipProgress) -> None:
            line = (
                f"{progress.seconds:.1f} s  {progress.method}  {progress.evaluations} "
                f"partitions  best {progress.bottleneck_s:.3e} s"
            )
            if console.is_terminal:
                status.update(line)
            elif progress.seconds > printed_s[0] + 1:  # in a log, one line a second
                printed_s[0] = progress.seconds
                console.print(line, highlight=False, soft_wrap=True)

        answer = partition_chips(
            fn,
            placed,
            *args,
            weights=weights or "*params*",
            seconds=seconds,
            seed=seed,
            progress=show,
        )
    print(answer.to_json() if as_json else answer)
    for path, ending in ((out, None), (html, ".html")):
        if path is not None:
            _write(answer, path, ending or path.suffix)


def _write(answer: ChipPartition, path: Path, ending: str) -> None:
    """Write the answer in the format of a file's ending; CSV without one of ours."""
    if ending in (".html", ".htm"):
        answer.report(path)
        return
    formats = {".json": answer.to_json, ".svg": answer.svg}
    path.write_text(formats.get(ending, answer.to_csv)(), encoding="utf-8")

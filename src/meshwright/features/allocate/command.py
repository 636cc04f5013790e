"""`meshwright allocate`: offsets for the buffers of a CSV within a capacity in bytes."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from meshwright.app.output.files import output_file
from meshwright.app.output.progress import show_progress
from meshwright.features.allocate import (
    Allocation,
    AllocationOutcome,
    AllocationProgress,
    allocate,
    read_buffers,
)

Buffers = Annotated[
    Path,
    Argument(
        metavar="BUFFERS",
        help="CSV with id, lower, upper, size; optional alignment, offset, gaps",
        show_default=False,
    ),
]

Capacity = Annotated[
    int | None, Option("--capacity", help="bytes of the memory; without: --minimize")
]

Minimize = Annotated[bool, Option("--minimize", help="search for the least height")]

Seconds = Annotated[float, Option("--seconds", help="most CPU seconds to search")]

Seed = Annotated[
    int, Option("--seed", min=0, max=2**32 - 1, help="random seed of the search")
]


def allocate_command(  # noqa: PLR0913  an option each
    file: Buffers,
    capacity: Capacity = None,
    minimize: Minimize = False,
    seconds: Seconds = 60.0,
    seed: Seed = 0,
    method: Annotated[
        str, Option(help="portfolio, or guided: CP-SAT tells offsets")
    ] = "portfolio",
    out: Annotated[
        Path | None, Option(help="file for the offsets: .csv, .json, .svg or .html")
    ] = None,
    svg: Annotated[
        Path | None, Option(help="file for a picture of the packing")
    ] = None,
    html: Annotated[
        Path | None, Option(help="file for a page with the picture")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="print JSON for programs")] = False,
) -> None:
    """Place buffers in a memory so that those live together do not overlap.

    Prints the outcome, the height and a lower bound. Exit status 0: all are placed, 1:
    that is impossible or was not achieved in time, 2: misuse.
    """
    written = [(out, None), (svg, ".svg"), (html, ".html")]
    for path, _ in written:
        if path is not None:
            output_file(path)
    buffers = read_buffers(file)
    with show_progress("packing") as show:
        answer = allocate(
            buffers,
            capacity,
            minimize=minimize,
            seconds=seconds,
            seed=seed,
            method=method,
            progress=lambda progress: show(_progress_line(progress)),
        )
    print(answer.to_json() if as_json else answer)
    if answer.outcome is not AllocationOutcome.PACKED:
        raise typer.Exit(1)
    for path, ending in written:
        if path is not None:
            _write(answer, path, ending or path.suffix)


def _progress_line(progress: AllocationProgress) -> str:
    return (
        f"{progress.seconds:.1f} s  {progress.nodes} nodes  "
        f"capacity {progress.capacity}  best {progress.height}"
    )


def _write(answer: Allocation, path: Path, ending: str) -> None:
    """Write the answer as HTML, JSON, SVG or CSV, by the ending of the file's name."""
    if ending in (".html", ".htm"):
        answer.report(path)
        return
    formats = {".json": answer.to_json, ".svg": answer.svg}
    path.write_text(formats.get(ending, answer.to_csv)(), encoding="utf-8")

"""`meshwright collectives`: how mesh axes lie on a machine, and how to reduce over them."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from typer import Option

from meshwright.app.output.numbers import show_seconds
from meshwright.app.output.table import Table
from meshwright.cli.arguments.options import AsJson, MachineName, make_console
from meshwright.errors import CollectiveError
from meshwright.features.collectives.group_collectives import Library
from meshwright.features.collectives.hierarchy import placements, show_matrix
from meshwright.features.collectives.reductions import Reductions, reductions
from meshwright.features.collectives.semantics import ReductionGoal
from meshwright.features.collectives.synthesis import MOST_STEPS
from meshwright.machine.memory_size import size_bytes


def collectives_command(  # noqa: PLR0913  each is an option
    hierarchy: Annotated[
        str, Option(help="children at each level, outermost first: 4,16")
    ],
    axes: Annotated[str, Option(help="sizes of the mesh axes: 2,32")],
    reduce: Annotated[str, Option(help="positions of the reduced axes: 1")],
    machine: MachineName = None,
    size: Annotated[
        str, Option("--bytes", help="size of the value on a device: 1GiB")
    ] = "1GiB",
    goal: Annotated[ReductionGoal, Option(help="what the programs compute")] = (
        ReductionGoal.ALL_REDUCE
    ),
    library: Annotated[
        Library | None,
        Option(help="how one collective crosses levels; default: the machine's"),
    ] = None,
    most_steps: Annotated[
        int, Option(min=1, max=8, help="most steps of a program")
    ] = MOST_STEPS,
    top: Annotated[int, Option(min=1, help="programs to print of each placement")] = 5,
    check: Annotated[
        str | None,
        Option(help="say whether a program is right: 'reduce inside 0; ...'"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List placements of axes on a machine, and programs that reduce over them.

    Each step runs within groups of devices, named by a level of their tree; 0 is its root.
    """
    results = _searched(
        (_sizes(hierarchy, "--hierarchy"), _sizes(axes, "--axes")),
        _sizes(reduce, "--reduce"),
        {
            "machine": machine,
            "num_bytes": size_bytes(size, "--bytes"),
            "goal": goal,
            "library": library,
            "most_steps": most_steps,
        },
    )
    if check is not None:
        _check(results, check)
    elif as_json:
        print(json.dumps([each.to_data() for each in results], indent=1))
    else:
        make_console().print(collectives_table(results, top))


def _searched(
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    reduce: tuple[int, ...],
    options: dict[str, object],
) -> list[Reductions]:
    """The programs of each placement of the axes, the fastest placement first."""
    hierarchy, axes = sizes
    results = [
        reductions(hierarchy, matrix, reduce, **options)  # pyright: ignore[reportArgumentType]
        for matrix in placements(hierarchy, axes)
    ]
    return sorted(results, key=lambda each: each[0].seconds or 0.0)


def _check(results: Sequence[Reductions], text: str) -> None:
    """Print for each placement whether a program is right; exit with 1 if one is not."""
    is_right = True
    for each in results:
        try:
            each.check(text)
            answer = "right"
        except CollectiveError as error:
            is_right, answer = False, str(error)
        print(f"{show_matrix(each.case.matrix)}: {answer}")
    if not is_right:
        raise typer.Exit(1)


def collectives_table(results: Sequence[Reductions], top: int) -> Table:
    """A table with the `top` fastest programs of each placement.

    The plain collective, a program of one step, is listed in any case.
    """
    titles = ("placement", ">rank", ">time", ">gain", "program")
    return Table(titles, tuple(row for each in results for row in _rows(each, top)))


def _rows(reduction: Reductions, top: int) -> list[tuple[str, ...]]:
    plain = reduction.plain
    rows: list[tuple[str, ...]] = []
    for rank, each in enumerate(reduction, 1):
        if rank > top and not (each is plain and reduction.machine):
            continue
        name = show_matrix(reduction.case.matrix) if rank == 1 else ""
        time, gain = "-", "-"
        if each.seconds is not None and plain.seconds is not None:
            time = show_seconds(each.seconds)
            gain = f"{plain.seconds / each.seconds:.2f}x" if each.seconds else "-"
        text = str(each) or "nothing to do: the axes have one device"
        rows.append((name, f"{rank}/{len(reduction)}", time, gain, text))
    return rows


def _sizes(text: str, option: str) -> tuple[int, ...]:
    """The integers of a text such as `4,16`.

    option: name of the option that had the text, for the error if it holds no integers.
    """
    parts = [part.strip() for part in text.replace("x", ",").split(",")]
    if not all(part.isdigit() for part in parts):
        raise CollectiveError(f"{option} is {text!r:.60}; wanted ints, such as 4,16")
    return tuple(map(int, parts))

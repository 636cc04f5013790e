"""`meshwright zoo`: the example programs, with their size and memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from textwrap import indent
from typing import Annotated, Any

import typer

from meshwright.app.output.progress import show_progress
from meshwright.app.summary import Summary, summarise
from meshwright.cli.options import AsJson, make_console
from meshwright.cli.target import load_module
from meshwright.errors import TargetError

_CATALOGUE = "zoo.catalogue"
_PREFIXES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def zoo_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="programs to list; all by default"),
    ] = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="the small forms, not the published sizes")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the programs of the zoo: parameters, FLOPs a step, memory on one device.

    Memory is the peak of the live values when ops run in order and nothing is fused.
    """
    rows = zoo_rows(names or (), tiny)
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, make_console().width)


@dataclass(frozen=True, slots=True)
class ZooRow:
    """A target of the zoo and its size; trace_s: seconds to trace it and to count."""

    target: str
    title: str
    summary: Summary
    trace_s: float

    def to_json(self) -> dict[str, Any]:
        """All fields in one flat dict."""
        summary = self.summary
        return {
            "target": self.target,
            "title": self.title,
            "parameters": summary.parameters,
            "flops": summary.flops,
            "peak_bytes": summary.peak_bytes,
            "num_ops": summary.num_ops,
            "trace_s": round(self.trace_s, 3),
        }


def zoo_rows(names: Sequence[str], tiny: bool) -> ZooRows:
    """Rows of the named workloads, or of all if no name is given.

    tiny: take the small forms, which hold arrays, instead of the published sizes.
    """
    return ZooRows(
        tuple(
            (f"zoo/{workload.name}.py:{make.__name__}", workload.title, make)
            for workload in _chosen(names)
            for make in ((workload.tiny,) if tiny else workload.full)
        )
    )


@dataclass(frozen=True, slots=True)
class ZooRows:
    """Rows of the table, each traced when the iteration reaches it.

    entries: for each row the target, its title, and the function that makes it.
    """

    entries: tuple[tuple[str, str, Callable[[], Any]], ...]

    def __iter__(self) -> Iterator[ZooRow]:
        for i, (target, title, make) in enumerate(self.entries, start=1):
            with show_progress(f"tracing {target}, {i} of {len(self.entries)}"):
                start_s = time.perf_counter()
                summary = summarise(*make())
                elapsed_s = time.perf_counter() - start_s
            yield ZooRow(target, title, summary, elapsed_s)


def print_rows(rows: ZooRows, columns: int) -> None:
    """Print a line for each program as soon as it is traced.

    columns: width of the screen; the titles are left out if they do not fit.
    """
    widths = [max(len(e[0]) for e in rows.entries), *map(len, _NUMBERS)]
    title = max(len(e[1]) for e in rows.entries)
    is_wide = sum(widths) + title + _GAP * len(widths) <= columns

    def show(target: str, what: str, numbers: Sequence[str]) -> None:
        cells = [f"{target:{widths[0]}}", *([f"{what:{title}}"] if is_wide else ())]
        cells += [f"{n:>{w}}" for n, w in zip(numbers, widths[1:], strict=True)]
        print(
            (" " * _GAP).join(cells), flush=True
        )  # a pipe gets each line at once, too

    show("target", "what", _NUMBERS)
    for row in rows:
        show(row.target, row.title, _numbers(row))


def print_json(rows: ZooRows) -> None:
    """Print a JSON list, each entry as soon as its program is traced."""
    for i, row in enumerate(rows):
        text = indent(json.dumps(row.to_json(), indent=1), " ")
        print(",\n" if i else "[\n", text, sep="", end="", flush=True)
    print("\n]")


_NUMBERS = ("parameters", "FLOPs a step", "  memory", "traced in")
"""Column headers, padded to the width of the numbers below them: `3.16 TiB`."""
_GAP = 2
"""Spaces between columns."""


def _numbers(row: ZooRow) -> tuple[str, ...]:
    summary = row.summary
    return (
        _scaled(summary.parameters),
        _scaled(summary.flops),
        _memory(summary.peak_bytes),
        f"{row.trace_s:.1f} s",
    )


def _scaled(number: float) -> str:
    """A number with three digits and a decimal prefix: `5.54 G`."""
    for prefix, size in _PREFIXES:
        if number >= size:
            return f"{number / size:.3g} {prefix}"
    return f"{number:g}"


def _memory(num_bytes: int) -> str:
    """A size with three digits and a unit: `3.16 TiB`; from 1,000 on the next unit."""
    for unit, size in _UNITS:
        if num_bytes >= size * 1000 / 1024:
            return f"{num_bytes / size:.3g} {unit}"
    return f"{num_bytes} B"


def _chosen(names: Sequence[str]) -> list[Any]:
    """The workloads of these names; all if there are none."""
    known = {workload.name: workload for workload in _catalogue()}
    missing = [name for name in names if name not in known]
    if missing:
        near = get_close_matches(missing[0], known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TargetError(
            f"the zoo has no {missing[0]!r}{hint}; it has {', '.join(known)}"
        )
    return [known[name] for name in names or known]


def _catalogue() -> Sequence[Any]:
    """The workloads of the folder `zoo`, here or on Python's module path."""
    try:
        module = load_module(_CATALOGUE)
    except TargetError:
        if find_spec(_CATALOGUE.partition(".")[0]) is not None:
            raise
        raise TargetError(
            "there is no module 'zoo' here: it is part of Meshwright's repository, not of "
            "the installed package; run this in the repository's root, or put that on "
            "PYTHONPATH"
        ) from None
    return tuple(module.WORKLOADS)

"""`meshwright zoo`: the programs of a zoo, each traced and counted as it is reached."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from meshwright.cli.target import load_module
from meshwright.errors import TargetError
from meshwright.plan.summary import Summary, summarise

_CATALOGUE = "zoo.catalogue"
_PREFIXES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


@dataclass(frozen=True, slots=True)
class Row:
    """One target of the zoo and what was counted; trace_s: seconds for both."""

    target: str
    title: str
    summary: Summary
    trace_s: float

    def to_json(self) -> dict[str, Any]:
        """All fields, flat."""
        found = self.summary
        return {
            "target": self.target,
            "title": self.title,
            "parameters": found.parameters,
            "flops": found.flops,
            "peak_bytes": found.peak_bytes,
            "num_ops": found.num_ops,
            "trace_s": round(self.trace_s, 3),
        }


def zoo_rows(names: Sequence[str], tiny: bool) -> Iterator[Row]:
    """The targets of the chosen workloads, all by default, one after another.

    tiny: the small forms, which hold arrays, instead of the published sizes.
    """
    for workload in _chosen(names):
        for make in (workload.tiny,) if tiny else workload.full:
            start_s = time.perf_counter()
            summary = summarise(*make())
            elapsed_s = time.perf_counter() - start_s
            target = f"zoo/{workload.name}.py:{make.__name__}"
            yield Row(target, workload.title, summary, elapsed_s)


def print_rows(rows: Iterator[Row], console: Console) -> None:
    """A table that grows while the programs are traced."""
    table = Table(box=None, header_style="bold")
    table.add_column("target", no_wrap=True)
    table.add_column("what")
    for column in ("parameters", "FLOPs a step", "memory", "traced in"):
        table.add_column(column, justify="right", no_wrap=True)
    if not sys.stdout.isatty():
        for row in rows:
            table.add_row(*_cells(row))
        console.print(table)
        return
    with Live(table, console=console, vertical_overflow="visible"):
        for row in rows:
            table.add_row(*_cells(row))


def _cells(row: Row) -> tuple[str, ...]:
    found = row.summary
    return (
        row.target,
        row.title,
        _scaled(found.parameters),
        _scaled(found.flops),
        f"{found.peak_bytes / 2**30:.3g} GiB",
        f"{row.trace_s:.1f} s",
    )


def _scaled(number: float) -> str:
    """Three digits and a decimal prefix: `5.54 G`."""
    for prefix, size in _PREFIXES:
        if number >= size:
            return f"{number / size:.3g} {prefix}"
    return f"{number:g}"


def _chosen(names: Sequence[str]) -> list[Any]:
    """The workloads called so, or whose files are."""
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
    """What the folder `zoo` offers, here or where Python looks for modules."""
    module = load_module(_CATALOGUE)
    return tuple(module.WORKLOADS)

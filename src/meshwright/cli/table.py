"""The table that `check` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from meshwright.app import CheckReport, OutputError
from meshwright.app.output.collapse import index_free, merge
from meshwright.program.ir import show_type


def check_table(report: CheckReport, expand: bool) -> Table:
    """One row per output; one for those that differ only in the index of a layer."""
    table = Table(box=None, pad_edge=False)
    table.add_column("output", overflow="fold")
    table.add_column("type")
    for name in ("largest error", "allowed"):
        table.add_column(name, justify="right")
    table.add_column("")
    for group in _groups(report.outputs, expand):
        worst = max(group, key=lambda output: (not output.ok, output.error))
        count = f" (x{len(group)})" if len(group) > 1 else ""
        table.add_row(
            merge([output.path for output in group]) + count,
            show_type(worst.shape, worst.dtype),
            f"{worst.error:.1e}",
            f"{worst.tolerance:.0e}",
            "ok" if worst.ok else "WRONG",
        )
    return table


def _groups(outputs: Sequence[OutputError], expand: bool) -> list[list[OutputError]]:
    groups: dict[object, list[OutputError]] = {}
    for output in outputs:
        name = output.path if expand else index_free(output.path)
        groups.setdefault((name, output.shape, output.dtype, output.ok), []).append(
            output
        )
    return list(groups.values())

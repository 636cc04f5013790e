"""`meshwright check`: the original and the partitioned program, output by output."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from meshwright.app import CheckReport, OutputError
from meshwright.app.check.sample import sample_arguments
from meshwright.app.check.virtual import use_virtual_devices
from meshwright.app.explain.show import show_refusals
from meshwright.app.output.collapse import index_free, merge
from meshwright.app.output.progress import show_progress
from meshwright.cli.memory import require_memory
from meshwright.cli.options import (
    All,
    AsJson,
    GatherText,
    MeshText,
    Schedule,
    StepOptions,
    Tactics,
    TargetText,
    load_step,
    make_console,
)
from meshwright.machine import parse_mesh
from meshwright.partitioner.lower import Gather
from meshwright.program.ir import show_type


def check_command(  # noqa: PLR0913  the options of a command
    target: TargetText,
    mesh: MeshText,
    schedule: Schedule = None,
    tactics: Tactics = None,
    gather: GatherText = Gather.SHARED,
    as_json: AsJson = False,
    expand: All = False,
    seed: Annotated[int, typer.Option("--seed", help="random seed of the inputs")] = 0,
) -> None:
    """Run original and partitioned on virtual devices and compare every output.

    Inputs that the target gives as shapes only are random. Exit status 1 if any output
    differs by more than rounding explains.
    """
    parsed = parse_mesh(mesh)
    if os.environ.get("JAX_PLATFORMS", "cpu") == "cpu":
        use_virtual_devices(parsed.num_devices)
    loaded, step = load_step(StepOptions(target, mesh, schedule, tactics, gather))
    require_memory(loaded, parsed)
    with show_progress(f"running {loaded.name} on one device and on {parsed}"):
        report = step.check(*sample_arguments(loaded.fn, loaded.args, seed))
        steps = step.plan(*loaded.args).steps
    if as_json:
        fields = {"target": loaded.name, "mesh": mesh, **report.to_json()}
        print(json.dumps(fields, indent=1))
    else:
        make_console().print(check_table(report, expand))
        print("\n".join([report.summary, *show_refusals(steps)]))
    raise typer.Exit(0 if report.ok else 1)


def check_table(report: CheckReport, expand: bool) -> Table:
    """A row for each output, or for all that differ only in the index of a layer."""
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
        key = (name, output.shape, output.dtype, output.ok)
        groups.setdefault(key, []).append(output)
    return list(groups.values())

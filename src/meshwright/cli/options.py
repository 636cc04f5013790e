"""What commands have in common: their options, the plan of a target, and the screen."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from meshwright.app import Partitioned, Plan, partition
from meshwright.app.output.progress import show_progress
from meshwright.cli.schedule import choose_tactics
from meshwright.cli.target import Target, load_target
from meshwright.machine import parse_mesh
from meshwright.partitioner.lower import Gather

_WIDE = 160
"""Columns of a table that goes into a file or a pipe."""

TargetText = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="path.py[:name] or pkg.module:name, a function that returns (fn, args)",
        show_default=False,
    ),
]
MeshText = Annotated[
    str, typer.Option("--mesh", help="axes and sizes: batch=8,model=4")
]
Schedule = Annotated[
    str | None, typer.Option("--schedule", help="one of the module's `schedules`")
]
Tactics = Annotated[
    str | None,
    typer.Option(
        "--tactics", help="tactics in order: \"shard({'x': 0}, axis='data')\""
    ),
]
GatherText = Annotated[
    Gather,
    typer.Option("--gather", help="gather what is needed whole once, or at each use"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
Machines = Annotated[
    str | None,
    typer.Option("--machines", help="compare: presets or TOML files, with commas"),
]
PlaceName = Annotated[
    str | None, typer.Option("--place", help="where it stands, for carbon: iowa, ...")
]
All = Annotated[bool, typer.Option("--all", help="every layer, not one for all")]


def make_console() -> Console:
    """Standard output, wide where it is a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else _WIDE)


def load_step(
    target: str, mesh: str, schedule: str | None, tactics: str | None, gather: Gather
) -> tuple[Target, Partitioned]:
    """The target, and its function partitioned as the options say."""
    parsed = parse_mesh(mesh)
    with show_progress(f"loading {target}"):
        loaded = load_target(target)
    chosen = choose_tactics(loaded, schedule, tactics)
    return loaded, partition(loaded.fn, parsed, chosen, gather=gather)


def plan_target(target: Target, step: Partitioned) -> Plan:
    """The plan of a target's own arguments."""
    with show_progress(f"planning {target.name} for {step.mesh}"):
        return step.plan(*target.args)

"""Options that commands share, the step that they describe, and the screen."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from meshwright.app import Partitioned, Plan, partition
from meshwright.app.output.progress import show_progress
from meshwright.cli.schedule import choose_tactics
from meshwright.cli.target import Target, load_target
from meshwright.machine import parse_mesh
from meshwright.partitioner.lower import Gather
from meshwright.planner.candidates.objective import OBJECTIVES

_WIDE = 160
"""Columns of a table that goes into a file or a pipe."""

# -- the step --------------------------------------------------------------------------

TargetText = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="path.py[:name] or pkg.module:name, a function that returns (fn, args)",
        show_default=False,
    ),
]
_MESH = typer.Option("--mesh", help="axes and sizes: batch=8,model=4")
MeshText = Annotated[str, _MESH]
OptionalMesh = Annotated[str | None, _MESH]
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
    typer.Option(
        "--gather", help="gather a value once for all its readers, or at each use"
    ),
]

# -- machines --------------------------------------------------------------------------

Machines = Annotated[
    str | None,
    typer.Option(
        "--machines", help="machines to compare: presets or TOML files, with commas"
    ),
]
PlaceName = Annotated[
    str | None,
    typer.Option("--place", help="location of the machine, for carbon: iowa, ..."),
]
Tokens = Annotated[
    float | None, typer.Option("--tokens", help="tokens of a whole run: 300e9")
]
TokensPerStep = Annotated[
    int | None,
    typer.Option(
        "--tokens-per-step",
        help="tokens of a step, if not the elements of its input of tokens",
    ),
]
Samples = Annotated[
    float | None, typer.Option("--samples", help="samples of a whole run")
]

# -- the search ------------------------------------------------------------------------

SearchMachine = Annotated[
    str | None,
    typer.Option(
        "--machine", help="search for the best plan on this machine: tpu-v5e, ..."
    ),
]
Chips = Annotated[
    int | None, typer.Option("--chips", help="chips of the machine, if without --mesh")
]
ObjectiveText = Annotated[
    str,
    typer.Option(
        "--objective",
        help=f"what to minimise: {', '.join(OBJECTIVES)}; or step_time=1,memory=0.3",
    ),
]
MemoryGib = Annotated[
    float | None, typer.Option("--memory", help="memory limit of a device, in GiB")
]
BudgetSeconds = Annotated[
    float, typer.Option("--budget", help="seconds of work to search")
]
MostAxes = Annotated[
    int, typer.Option("--most-axes", help="most axes of a mesh to try, 1 to 3")
]
SearchName = Annotated[
    str,
    typer.Option(
        "--search",
        help="how to search: program (integer program) or tree (tree search)",
    ),
]
SearchSeed = Annotated[int, typer.Option("--seed", help="random seed of the search")]
ConfirmFound = Annotated[
    bool,
    typer.Option("--confirm", help="compile the found plan with the real compiler"),
]

# -- the output ------------------------------------------------------------------------

AsJson = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
OutFile = Annotated[
    Path | None, typer.Option("--out", help="file to save the plan in, as JSON")
]
All = Annotated[
    bool, typer.Option("--all", help="show every layer, not one for all alike")
]


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
    """The plan of a step for the target's own arguments."""
    with show_progress(f"planning {target.name} for {step.mesh}"):
        return step.plan(*target.args)


def make_console() -> Console:
    """Standard output, wide where it is a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else _WIDE)


def make_table(*titles: str) -> Table:
    """A table without lines; a column is justified right if its title begins with `>`."""
    table = Table(box=None, pad_edge=False)
    for title in titles:
        justify = "right" if title.startswith(">") else "left"
        table.add_column(title.removeprefix(">"), justify=justify)
    return table

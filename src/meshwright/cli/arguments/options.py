"""Options that several commands share, the step that they describe, and the terminal."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from typer import Argument, Option

from meshwright.app.output.progress import show_progress
from meshwright.app.partition import partition
from meshwright.app.partitioned import Partitioned
from meshwright.app.plan import Plan
from meshwright.cli.arguments.schedule import choose_tactics
from meshwright.cli.arguments.target import Target, find_target
from meshwright.errors import TargetError
from meshwright.machine import parse_mesh
from meshwright.partitioner.decide import axes_of, require_tactics
from meshwright.partitioner.lower import Gather
from meshwright.planner.candidates.objective import OBJECTIVES

_WIDE = 160
"""Width in columns of a table that is written to a file or a pipe."""

# -- the step --------------------------------------------------------------------------

TargetText = Annotated[
    str,
    Argument(
        metavar="TARGET",
        help="path.py[:name] or pkg.module:name, a function that returns (fn, args)",
    ),
]
_MESH = Option(help="axes and sizes: batch=8,model=4")
Pipeline = Annotated[
    bool,
    Option("--pipeline", help="plan stages on parts of the machine, microbatches too"),
]
MeshText = Annotated[str, _MESH]
OptionalMesh = Annotated[str | None, _MESH]
Schedule = Annotated[
    str | None,
    Option(
        help="one of the module's `schedules`; with --pipeline: 1f1b, dualpipev, ..."
    ),
]
Tactics = Annotated[
    str | None, Option(help="tactics in order: \"shard({'x': 0}, axis='data')\"")
]
Loops = Annotated[
    list[str] | None,
    Option(
        "--loop", help="iterations of a loop of unknown length: model.py:42=64; repeat"
    ),
]
GatherText = Annotated[
    Gather, Option(help="gather a value once for all its readers, or at each use")
]

# -- machines --------------------------------------------------------------------------

MachineNames = Annotated[
    str | None,
    Option(
        help="machine of the figures, a preset or TOML file; commas compare several"
    ),
]
MachineName = Annotated[
    str | None, Option(help="machine of the figures, a preset or TOML file")
]
PlaceName = Annotated[
    str | None, Option(help="location of the machine, for carbon: iowa, ...")
]
Tokens = Annotated[float | None, Option(help="tokens of a whole run: 300e9")]
TokensPerStep = Annotated[
    int | None,
    Option(help="tokens of a step, if not the elements of its input of tokens"),
]
Samples = Annotated[float | None, Option(help="samples of a whole run")]

# -- the search ------------------------------------------------------------------------

Chips = Annotated[
    int | None, Option(help="without --mesh: search for the best plan on so many")
]
ObjectiveText = Annotated[
    str,
    Option(
        help=f"what to minimise: {', '.join(OBJECTIVES)}; or step_time=1,memory=0.3"
    ),
]
Memory = Annotated[str | None, Option(help="memory limit of a device: 12GiB, or bytes")]
BudgetSeconds = Annotated[float, Option(help="seconds of work to search")]
MostAxes = Annotated[int, Option(help="most axes of a mesh to try, 1 to 3")]
SearchName = Annotated[
    str | None,
    Option(help="search on --mesh, too: program (integer program), tree or experts"),
]
SearchSeed = Annotated[
    int, Option(min=0, max=2**31 - 1, help="random seed of the search")
]
ConfirmFound = Annotated[
    bool, Option("--confirm", help="compile the found plan with the real compiler")
]

# -- the output ------------------------------------------------------------------------

AsJson = Annotated[bool, Option("--json", help="print JSON for programs")]
OutFile = Annotated[
    Path | None,
    Option(help="file for the plan as JSON; FILE.html gets a page about it"),
]
TraceFile = Annotated[
    Path | None,
    Option("--trace", help="file for trace events of the step, for Perfetto"),
]
OffsetsFile = Annotated[
    Path | None, Option(help="CSV file for exact offsets of a device's buffers")
]
Full = Annotated[bool, Option("--full", help="show every layer, not one for all alike")]


# -- commands that take a step ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepOptions:
    """Options that name a step, its mesh, and the tactics that partition it."""

    target: TargetText
    mesh: MeshText
    schedule: Schedule = None
    tactics: Tactics = None
    gather: GatherText = Gather.SHARED
    loop: Loops = None

    @property
    def num_devices(self) -> int:
        """The number of devices of the mesh."""
        return parse_mesh(self.mesh).num_devices

    def load(self) -> tuple[Target, Partitioned]:
        """Import the target and partition its function over the mesh by the given tactics.

        Calling the target's function, which may build large arrays, is left to the end,
        so that wrong options are refused first.
        """
        mesh, loops = parse_mesh(self.mesh), read_loops(self.loop)
        with show_progress(f"loading {self.target}"):
            target = find_target(self.target)
            tactics = choose_tactics(target, self.schedule, self.tactics)
            require_tactics(tactics)
            mesh.require_all(axes_of(tactics))
            step = partition(target.fn, mesh, tactics, gather=self.gather, loops=loops)
            return target, step

    def plan(self) -> tuple[Target, Plan]:
        """Import the target, and plan its step for the arguments that it returns."""
        loaded, step = self.load()
        with show_progress(f"planning {loaded.name} for {step.mesh}"):
            return loaded, step.plan(*loaded.args).named(loaded.name)


def read_loops(texts: Sequence[str] | None) -> dict[str, int]:
    """Iterations of loops by source line, from texts such as `model.py:42=64`."""
    loops: dict[str, int] = {}
    for text in texts or ():
        line, _, count = text.rpartition("=")
        if not line or not count.isdigit() or not int(count):
            raise TargetError(f"--loop is {text!r}; wanted model.py:42=64, say")
        loops[line] = int(count)
    return loops


def takes_step(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the options of `StepOptions` besides those of `command`.

    `command` receives them as a `StepOptions` in its first parameter.
    """

    @wraps(command)
    def run(**values: Any) -> None:
        step = StepOptions(**{f.name: values.pop(f.name) for f in fields(StepOptions)})
        command(step, **values)

    _, *others = signature(command, eval_str=True).parameters.values()
    step = signature(StepOptions, eval_str=True).parameters.values()
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*step, *others)]
    vars(run)["__signature__"] = Signature(parameters)
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def make_console() -> Console:
    """A console on standard output, with a fixed width if that is a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else _WIDE)

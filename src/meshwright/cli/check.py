"""`meshwright check`: run a program on one device and on a mesh, and compare outputs."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

import meshwright.cli.arguments.options as options
from meshwright.app.check import sample
from meshwright.app.explain.show import show_refusals
from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.target import Target
from meshwright.errors import TargetError
from meshwright.machine import Mesh, parse_mesh
from meshwright.machine.memory_size import show_bytes
from meshwright.run.local.devices import find_devices


@options.takes_step
def check_command(
    options_of_step: options.StepOptions,
    as_json: options.AsJson = False,
    full: options.Full = False,
    seed: Annotated[int, Option(min=0, help="random seed of the inputs")] = 0,
) -> None:
    """Run original and partitioned on virtual devices and compare every output.

    Where the target gives only the shape of an input, its values are random. Exit status 1
    if any output differs by more than rounding explains.
    """
    mesh = parse_mesh(options_of_step.mesh)
    if os.environ.get("JAX_PLATFORMS", "cpu") == "cpu":
        sample.use_virtual_devices(mesh.num_devices)
    find_devices()  # refuses before the target is built, which may be slow
    loaded, step = options_of_step.load()
    require_memory(loaded, mesh)
    with show_progress(f"running {loaded.name} on one device and on {mesh}"):
        report = step.check(*sample.sample_arguments(loaded.fn, loaded.args, seed))
        steps = step.plan(*loaded.args).steps
    if as_json:
        fields = {"target": loaded.name, "mesh": str(mesh), **report.to_json()}
        print(json.dumps(fields, indent=1))
    else:
        options.make_console().print(report.table(full))
        print("\n".join([report.summary, *show_refusals(steps)]))
    raise typer.Exit(0 if report.ok else 1)


# -- memory ----------------------------------------------------------------------------

_COPIES = 4
"""Memory that a check needs at least, as a multiple of the arguments' size: inputs and
outputs of both runs."""


def require_memory(target: Target, mesh: Mesh) -> None:
    """Raise `TargetError` if this machine lacks the memory to run a target twice.

    Its arguments exist once for one device and once for the mesh.
    """
    free = free_bytes()
    needed = _COPIES * sample.argument_bytes(target.args)
    if free is None or needed <= free:
        return
    raise TargetError(
        f"{target.name} needs at least {show_bytes(needed)} to run on one device and on "
        f"{mesh} side by side, and {show_bytes(free)} are free; give a smaller target; "
        "`plan` and `explain` need no memory"
    )


def free_bytes() -> int | None:
    """Free memory of this machine in bytes; `None` if the system does not report it."""
    known = Path("/proc/meminfo")
    if known.is_file():
        for line in known.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None

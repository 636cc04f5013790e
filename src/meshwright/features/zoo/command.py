"""`meshwright zoo`: a table of the example programs, with their sizes and memory."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from textwrap import indent
from typing import Annotated, Any

from typer import Argument, Option

from meshwright.app.output.numbers import show_count
from meshwright.app.output.progress import show_progress
from meshwright.app.output.table import columns
from meshwright.app.step.load_module import load_module
from meshwright.cli.arguments.options import AsJson, make_console
from meshwright.errors import TargetError, did_you_mean
from meshwright.machine.memory_size import show_bytes
from meshwright.predict.roofline.work import program_work
from meshwright.program.analysis.live_ranges import peak_bytes
from meshwright.program.capture import capture

_CATALOGUE = "zoo.catalogue"


def zoo_command(
    names: Annotated[
        list[str] | None,
        Argument(metavar="[NAME]...", help="programs to list; all by default"),
    ] = None,
    tiny: Annotated[
        bool, Option("--tiny", help="the small forms, not the published sizes")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the programs of the zoo: parameters, FLOPs a step, memory on one device.

    Memory is the peak of the live values when ops run in order and nothing is fused.
    """
    entries = zoo_entries(names or (), tiny)
    if as_json:
        print_json(entries)
    else:
        print_rows(entries, make_console().width)


Entry = tuple[str, str, Callable[[], Any]]
"""A target, its title, and the function that makes it."""


def zoo_entries(names: Sequence[str], tiny: bool) -> list[Entry]:
    """The targets of the named example programs, or of all of them if no name is given.

    tiny: return the small forms, which hold arrays, instead of the published sizes.
    """
    return [
        (f"zoo/{workload.name}.py:{make.__name__}", workload.title, make)
        for workload in _chosen(names)
        for make in ((workload.tiny,) if tiny else workload.full)
    ]


def trace_rows(entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """The figures of each target, which is traced when its row is asked for.

    The column trace_s has the seconds to trace the program and to count.
    """
    for i, (target, title, make) in enumerate(entries, start=1):
        with show_progress(f"tracing {target}, {i} of {len(entries)}"):
            start_s = time.perf_counter()
            sizes = program_sizes(*make())
            elapsed_s = time.perf_counter() - start_s
        yield {
            "target": target, "title": title, **sizes, "trace_s": round(elapsed_s, 3)
        }  # fmt: skip


def program_sizes(fn: Callable[..., Any], args: Sequence[Any]) -> dict[str, int]:
    """The size of `fn(*args)` on one device; the arguments may be `ShapeDtypeStruct`s.

    parameters: elements of the inputs under a container called `params`.
    flops: arithmetic operations.
    peak_bytes: peak of the live values if ops run in order and nothing is fused.
    num_ops: ops of the program; the body of a loop counts once.
    """
    captured = capture(fn, args)
    program = captured.program
    inputs = zip(captured.paths, program.inputs, strict=True)
    return {
        "parameters": sum(
            math.prod(x.shape) for path, x in inputs if "params" in path.split(".")
        ),
        "flops": program_work(program).flops,
        "peak_bytes": peak_bytes(program, {*captured.ties.values(), *captured.donated}),
        "num_ops": sum(1 for _ in program.walk()),
    }


def print_rows(entries: Sequence[Entry], width: int) -> None:
    """Print a line for each program as soon as it is traced.

    width: width of the screen; the titles are left out if they do not fit.
    """
    target_width = max(len(target) for target, _, _ in entries)
    title_width = max(len(title) for _, title, _ in entries)
    widths = [str(target_width), *(f">{len(title)}" for title in _NUMBERS)]
    used = [target_width, title_width, *map(len, _NUMBERS)]
    is_wide = sum(used) + len(_GAP) * (len(used) - 1) <= width
    if is_wide:
        widths.insert(1, str(title_width))

    def show(target: str, what: str, numbers: Sequence[str]) -> None:
        cells = (target, what, *numbers) if is_wide else (target, *numbers)
        # A pipe gets each line at once, too.
        print(*columns([cells], widths, _GAP), flush=True)

    show("target", "what", _NUMBERS)
    for row in trace_rows(entries):
        numbers = (
            show_count(row["parameters"]),
            show_count(row["flops"]),
            show_bytes(row["peak_bytes"]),
            f"{row['trace_s']:.1f} s",
        )
        show(row["target"], row["title"], numbers)


def print_json(entries: Sequence[Entry]) -> None:
    """Print a JSON list, each entry as soon as its program is traced."""
    for i, row in enumerate(trace_rows(entries)):
        text = indent(json.dumps(row, indent=1), " ")
        print(",\n" if i else "[\n", text, sep="", end="", flush=True)
    print("\n]")


_NUMBERS = ("parameters", "FLOPs a step", "  memory", "traced in")
"""Column headers, padded to the width of the numbers below them: `3.16 TiB`."""
_GAP = "  "
"""The spaces between columns."""


def _chosen(names: Sequence[str]) -> list[Any]:
    """The workloads of the given names; all workloads if there are no names."""
    known = {workload.name: workload for workload in _catalogue()}
    missing = [name for name in names if name not in known]
    if missing:
        hint = did_you_mean(missing[0], known)
        raise TargetError(
            f"the zoo has no {missing[0]!r}{hint}; it has {', '.join(known)}"
        )
    return [known[name] for name in names or known]


def _catalogue() -> Sequence[Any]:
    """The workloads of the folder `zoo`, in this directory or on Python's path."""
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

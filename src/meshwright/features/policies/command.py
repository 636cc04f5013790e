"""`meshwright policies`: learned policies in systems, beside the ones that they replace."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from meshwright.app.output.files import output_file
from meshwright.app.output.progress import show_progress
from meshwright.app.output.table import Table
from meshwright.cli.arguments.options import AsJson, make_console
from meshwright.errors import PlanError, PolicyError
from meshwright.features.policies.cache.bounds import least_misses
from meshwright.features.policies.cache.page import draw_page
from meshwright.features.policies.cache.simulate import (
    POLICIES,
    CacheSimulation,
    check_policy,
    simulate,
)
from meshwright.features.policies.cache.trace import Trace, read_trace, trace
from meshwright.features.policies.compiler.projects.training_command import (
    train_command,
)
from meshwright.features.policies.compiler.projects.tuning_command import (
    build_command,
    corpus_command,
    tune_command,
)
from meshwright.machine.memory_size import show_bytes, size_bytes

policies_command = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Compare learned policies in systems with the ones that they replace.",
)


@policies_command.callback()
def _group() -> None:
    """Compare learned policies in systems with the ones that they replace."""


policies_command.command("corpus")(corpus_command)
policies_command.command("tune")(tune_command)
policies_command.command("train")(train_command)
policies_command.command(
    "build",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": False},
)(build_command)


@policies_command.command("simulate")
def simulate_command(  # noqa: PLR0913  the options of a command
    trace: Annotated[
        Path, Argument(help="requests as text: time,id,size, or ids alone; .gz, .xz")
    ],
    cache: Annotated[
        str, Option(help="sizes of the cache: 1%,10%,10GB; % of the working set")
    ] = "1%,10%",
    policies: Annotated[
        str, Option(help=f"names among {', '.join(POLICIES)}")
    ] = "halp,s3fifo,sieve,arc,lru,belady",
    form: Annotated[
        str, Option(help="text, int32-big or uint32-little (binary ids)")
    ] = "text",
    changed: Annotated[
        str,
        Option(help="ids whose size changes: refuse, or separate (one object a size)"),
    ] = "refuse",
    seed: Annotated[int, Option(min=0, help="of the networks' first weights")] = 0,
    out: Annotated[
        Path | None, Option(help="file for a page with pictures: .html")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the misses of eviction policies on a trace, for each size of the cache.

    The last rows are the least misses that any policy could have.
    """
    names = [name.strip() for name in policies.split(",") if name.strip()]
    for name in names:
        check_policy(name)
    if out is not None:
        if out.suffix != ".html":
            raise PolicyError(f"out is {out}; wanted a file that ends in .html")
        output_file(out)
    if changed not in ("refuse", "separate"):
        raise PolicyError(f"changed is {changed!r}; wanted 'refuse' or 'separate'")
    with show_progress(f"reading {trace}"):
        requests = read_trace(
            trace, form=form, changed="separate" if changed == "separate" else "refuse"
        )
    sizes = [_capacity(text, requests) for text in cache.split(",") if text.strip()]
    with show_progress("simulating") as show:
        runs: list[tuple[CacheSimulation, float]] = []
        for run in _runs(requests, sizes, names, seed):
            runs.append(run)
            show(f"{run[0]}")
    bounds = [(size, *least_misses(requests, size)) for size in sizes]
    if out is not None:
        table = _table(requests, runs, bounds)
        drawn = draw_page(requests, [run for run, _ in runs], bounds, table)
        out.write_text(drawn, encoding="utf-8")
    if as_json:
        print(json.dumps(_as_json(requests, runs, bounds), indent=2))
        return
    console = make_console()
    console.print(str(requests))
    console.print(_table(requests, runs, bounds))


def _runs(
    requests: Trace, sizes: Sequence[int], names: Sequence[str], seed: int
) -> Iterator[tuple[CacheSimulation, float]]:
    """Each policy at each size, with its CPU seconds without compilation."""
    for name in names:
        simulate(trace([0, 1, 0]), 1, name)
    for size in sizes:
        for name in names:
            before = time.process_time()
            simulation = simulate(requests, size, name, seed=seed)
            yield simulation, time.process_time() - before


def _capacity(text: str, requests: Trace) -> int:
    """Bytes of a cache, from a size or a share of the working set."""
    text = text.strip()
    try:
        if text.endswith("%"):
            size = float(text[:-1]) / 100 * requests.working_set
        else:
            size = size_bytes(text, "a size of the cache")
    except (ValueError, PlanError) as error:
        raise PolicyError(
            f"a size of the cache is {text!r}; wanted a share of the working set such as"
            f" 10%, or bytes such as 10GB"
        ) from error
    if not 1 <= size < 2**62:
        raise PolicyError(
            f"a cache of {text} has {size:g} bytes; wanted 1 or more (the working set of"
            f" {requests.name} has {requests.working_set} bytes)"
        )
    return int(size)


def _as_json(
    requests: Trace,
    runs: Sequence[tuple[CacheSimulation, float]],
    bounds: Sequence[tuple[int, int, int]],
) -> dict[str, object]:
    """The figures as plain values."""
    return {
        "trace": requests.name,
        "requests": len(requests.ids),
        "objects": requests.objects,
        "working_set_bytes": requests.working_set,
        "runs": [run.to_json() | {"cpu_s": seconds} for run, seconds in runs],
        "least": [
            {"capacity_bytes": size, "misses": misses, "missed_bytes": missed}
            for size, misses, missed in bounds
        ],
    }


def _table(
    requests: Trace,
    runs: Sequence[tuple[CacheSimulation, float]],
    bounds: Sequence[tuple[int, int, int]],
) -> Table:
    """A row for each policy at each size, and the bound below them."""
    rows = [
        (
            show_bytes(run.capacity),
            run.policy,
            f"{run.miss_ratio:.2%}",
            f"{run.byte_miss_ratio:.2%}",
            f"{seconds / run.requests * 1e9:.0f} ns",
        )
        for run, seconds in runs
    ]
    number, total = len(requests.ids), int(requests.sizes.sum())
    rows += [
        (
            show_bytes(size),
            "at least",
            f"{misses / number:.2%}",
            f"{missed / total:.2%}",
            "",
        )
        for size, misses, missed in bounds
    ]
    titles = ("cache", "policy", ">misses", ">bytes missed", ">CPU per request")
    return Table(titles, tuple(rows))

"""`meshwright nas latency`: predicted times of models on machines, block by block."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from typer import Argument, Option

from meshwright.app.output.numbers import (
    show_dollars,
    show_seconds,
    show_share,
    show_si,
)
from meshwright.app.output.progress import show_progress
from meshwright.app.output.table import Table
from meshwright.cli.arguments.options import AsJson, make_console
from meshwright.cli.arguments.target import Target, find_target
from meshwright.errors import MachineError, TargetError
from meshwright.features.codesign.nas.cost.latency import (
    Latency,
    latency,
    named,
    run_by,
)
from meshwright.machine import Machine, load_machine
from meshwright.machine.memory_size import show_bytes
from meshwright.predict.energy import find_location

TargetTexts = Annotated[
    list[str],
    Argument(
        metavar="TARGET...",
        help="path.py[:name] or pkg.module:name; of its `inference` forms if it has any",
    ),
]
MachineTexts = Annotated[
    str, Option("--machine", help="presets or TOML files: tpu-v3,v100")
]
BatchSize = Annotated[
    int | None,
    Option("--batch", min=1, help="inputs of a call, if the target takes it"),
]
Dtype = Annotated[
    str | None,
    Option("--dtype", help="of weights and inputs, if the target takes it: float16"),
]
_Place = Annotated[
    str, Option("--place", help="location of the machine, for carbon: iowa, ...")
]

_Framework = Annotated[
    str | None,
    Option("--framework", help="pytorch or tensorflow: op by op on GPUs, not compiled"),
]


def latency_command(  # noqa: PLR0913  an option each
    targets: TargetTexts,
    machine: MachineTexts,
    batch: BatchSize = None,
    dtype: Dtype = None,
    place: _Place = "us-average",
    framework: _Framework = None,
    as_json: AsJson = False,
) -> None:
    """Print milliseconds, the share of the roofline, and what bounds each block.

    The time is that of one call on one chip, by the model that `meshwright plan` uses.
    """
    find_location(place)
    machines = machines_of(machine)
    if framework is not None:
        machines = [run_by(framework, each) for each in machines]
    changes = {"batch": batch, "dtype": dtype}
    records: list[Latency] = []
    for text in targets:
        with show_progress(f"loading {text}"):
            fn, args = made_with(find_target(text, is_inference=True), changes)
        for each in machines:
            with show_progress(f"{text} on {each.name}"):
                found = latency(fn, args, each, place=place)
            records.append(named(found, text))
    if as_json:
        print(json.dumps([json.loads(each.to_json()) for each in records], indent=1))
        return
    console = make_console()
    console.print(_summary(records))
    for each in records:
        console.print(f"\n{each.name} on {each.machine}, by block")
        console.print(_blocks(each))
    for dtypes, name in {(r.widened, r.machine): None for r in records if r.widened}:
        print(f"\n{name} computes products of {', '.join(dtypes)} as float32")


def machines_of(text: str) -> list[Machine]:
    """One chip of each machine in a list with commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise MachineError(f"--machine is {text!r}; wanted names such as tpu-v3,v100")
    return [load_machine(name, None) for name in dict.fromkeys(names)]


def made_with(
    target: Target, changes: Mapping[str, object]
) -> tuple[Callable[..., Any], Sequence[Any]]:
    """The function and arguments of a target, with those changes that are not `None`.

    Raises `TargetError` if the target takes no such changes.
    """
    wanted = {name: value for name, value in changes.items() if value is not None}
    if not wanted:
        return target.made
    try:
        inspect.signature(target.make).bind(**wanted)
    except TypeError as fault:
        raise TargetError(
            f"{target.name} takes no {' or '.join(wanted)} ({fault}); wanted a target "
            "such as `def target(batch=128, dtype='bfloat16')`"
        ) from None
    return Target(target.name, partial(target.make, **wanted), target.schedules).made


def _summary(records: Sequence[Latency]) -> Table:
    """A row for each target and machine."""
    titles = (
        "target", "machine", ">time", ">of roofline", "bound", ">memory", ">energy",
        ">cost", ">CO2e",
    )  # fmt: skip
    return Table(titles, tuple(map(_summary_row, records)))


def _summary_row(r: Latency) -> tuple[str, ...]:
    memory = show_bytes(r.memory_bytes) + ("" if r.fits else ", too much")
    return (
        r.name,
        r.machine,
        show_seconds(r.seconds),
        show_share(r.roofline_share),
        r.bound,
        memory,
        "-" if r.energy_j is None else show_si(r.energy_j, "J"),
        "-" if r.cost_usd is None else show_dollars(r.cost_usd),
        "-" if r.co2e_g is None else show_si(r.co2e_g, "g"),
    )


def _blocks(record: Latency) -> Table:
    """A row for each block of a model."""
    bounds = tuple(record.bounds)
    rows = (
        (
            block.name,
            show_seconds(block.seconds),
            show_share(block.seconds / record.seconds),
            show_share(block.roofline_share),
            block.bound,
            *(show_share(block.bounds.get(b, 0.0) / block.seconds) for b in bounds),
            str(block.num_kernels),
        )
        for block in record.by_block
    )
    titles = ("block", ">time", ">share", ">of roofline", "bound")
    return Table((*titles, *(f">{b}" for b in bounds), ">kernels"), tuple(rows))

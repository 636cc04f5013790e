"""`meshwright accelerator eval`: time, energy, power and area of programs on a design."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from meshwright.app.output.files import output_file
from meshwright.app.output.numbers import show_seconds, show_share, show_si
from meshwright.app.output.progress import show_progress
from meshwright.app.output.table import Table
from meshwright.cli.arguments.options import AsJson, make_console
from meshwright.features.codesign.accelerator.commands.options import (
    DesignText,
    TargetTexts,
    workloads_of,
)
from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.features.codesign.accelerator.simulate.evaluate import (
    Evaluation,
    evaluate_workload,
)
from meshwright.features.codesign.accelerator.views.page import make_page
from meshwright.features.codesign.nas.cost.latency_command import BatchSize

_MOST_ROWS = 20


def eval_command(
    design: DesignText,
    targets: TargetTexts,
    batch: BatchSize = None,
    html: Annotated[Path | None, Option("--html", help="file for a page")] = None,
    as_json: AsJson = False,
) -> None:
    """Print time, energy, power and area of programs on a design, by op and by memory."""
    if html is not None:
        output_file(html)
    made = Design.load(design)
    found: list[Evaluation] = []
    for workload in workloads_of(targets, batch):
        with show_progress(f"{workload.name} on {made.name}"):
            found.append(evaluate_workload(made, workload))
    if html is not None:
        html.write_text(make_page(found), encoding="utf-8")
    if as_json:
        print(json.dumps([plain(each) for each in found], indent=1))
        return
    console = make_console()
    console.print(_summary(made, found))
    for each in found:
        console.print(f"\n{each.workload.name}, the layers that take longest")
        console.print(_layers(each))
        console.print(_memories(each))
    cost = made.cost
    print(
        f"\nassumed: {show_share(cost.assumed_area)} of the area, "
        f"{show_share(cost.assumed_power)} of the peak power"
    )


def plain(found: Evaluation) -> dict[str, Any]:
    """The figures of an evaluation as plain data."""
    return {
        "design": found.design.name,
        "target": found.workload.name,
        "seconds": found.seconds,
        "energy_j": found.energy_j,
        "power_w": found.power_w,
        "tdp_w": found.design.tdp_w,
        "area_mm2": found.area_mm2,
        "utilisation": found.utilisation,
        "dram_bytes": found.dram_bytes,
        "resident_bytes": found.residency.peak_bytes,
        "by_level_j": dict(found.by_level),
        "by_op": [
            {
                "name": layer.name,
                "times": layer.times,
                "seconds": layer.seconds,
                "bound": layer.bound,
                "energy_j": layer.energy_j,
                "dram_bytes": layer.dram_bytes,
            }
            for layer in found.by_op
        ],
    }


def _summary(design: Design, found: Sequence[Evaluation]) -> Table:
    titles = (
        "target", ">time", ">utilisation", ">energy", ">power", ">TDP", ">area",
        ">main memory",
    )  # fmt: skip
    rows = [
        (
            each.workload.name,
            show_seconds(each.seconds),
            show_share(each.utilisation),
            show_si(each.energy_j, "J"),
            show_si(each.power_w, "W"),
            show_si(design.tdp_w, "W"),
            f"{design.area_mm2:.0f} mm2",
            show_si(each.dram_bytes, "B"),
        )
        for each in found
    ]
    return Table(titles, tuple(rows))


def _layers(found: Evaluation) -> Table:
    longest = sorted(found.by_op, key=lambda layer: -layer.times * layer.seconds)
    rows = [
        (
            layer.name,
            str(layer.times),
            show_seconds(layer.times * layer.seconds),
            show_share(layer.times * layer.seconds / found.seconds),
            layer.bound,
            show_si(layer.times * layer.energy_j, "J"),
        )
        for layer in longest[:_MOST_ROWS]
    ]
    titles = ("layer", ">runs", ">time", ">share", "bound", ">energy")
    return Table(titles, tuple(rows))


def _memories(found: Evaluation) -> Table:
    rows = [
        (part, show_si(joules, "J"), show_share(joules / found.energy_j))
        for part, joules in found.by_level.items()
    ]
    return Table(("where energy goes", ">energy", ">share"), tuple(rows))

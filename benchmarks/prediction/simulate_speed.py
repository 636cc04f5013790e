"""Milliseconds to simulate a step after lowering: PartIR's T32 under its schedules.

Wall and CPU milliseconds of `estimate` for the step at full size, in a process of its own
for each schedule. Fusions of a program are computed once; other placements and donations
only repeat the simulation. So there are three figures: the first call of a process, the
median of calls with a newly lowered program, and the median of calls with the same
program. The time of lowering is shown next to them.

    python -m benchmarks prediction simulate_speed [--machine tpu-v3] [--rounds 20]
"""

from __future__ import annotations

import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

import meshwright as mw
from benchmarks.harness import ONLY, STORED, Options, benchmark, option
from meshwright.machine import Machine, load_machine
from meshwright.partitioner.decide import Decided
from meshwright.partitioner.lower import lower
from meshwright.predict.estimate import Estimate, estimate
from zoo import gpt

CONSOLE = Console()
MESH = {"batch": 8, "model": 4}
SCHEDULES = ("bp", "mp", "bp+mp", "bp+mp+z2", "bp+mp+z3", "emb", "bp+mp+z3+emb")


def clocked(run: Callable[[], Any]) -> tuple[float, float]:
    """Wall seconds and CPU seconds of a call."""
    wall_s, own_s = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall_s, time.process_time() - own_s


def measure(schedule: str, machine: str, rounds: int) -> dict[str, Any]:
    """One row."""
    step = mw.partition(gpt.train_step, MESH, gpt.schedules[schedule], gather="at_use")
    decided = step.decide(*gpt.shapes(gpt.T32))
    on = load_machine(machine, 32)
    first = clocked(lambda: estimate(decided, on))
    again = [clocked(lambda: estimate(decided, on)) for _ in range(rounds)]
    grouping = [clocked(_newly_simulated(decided, on)) for _ in range(rounds)]
    lowering = [
        clocked(lambda: lower(decided.work.state, decided.gather)) for _ in range(3)
    ]
    found = estimate(decided, on)
    row: dict[str, Any] = {
        "schedule": schedule,
        "ops": len(decided.lowered.program.ops),
        "units": len(found.fusions),
    }
    for name, times in (
        ("first", [first]), ("new", grouping), ("again", again), ("lower", lowering)
    ):  # fmt: skip
        row[f"{name}_s"] = statistics.median(wall for wall, _ in times)
        row[f"{name}_process_s"] = statistics.median(own for _, own in times)
    return row


def _newly_simulated(decided: Decided, machine: Machine) -> Callable[[], Estimate]:
    """Simulate the same program under another name, so that nothing is cached."""
    other = replace(decided, lowered=replace(decided.lowered))
    return lambda: estimate(other, machine)


@benchmark(
    option("--machine", default="tpu-v3"),
    option("--rounds", type=int, default=20),
    ONLY,
    out=STORED,
)
def main(options: Options) -> None:
    """Measure, print a table, write JSON."""
    rows: list[dict[str, Any]] = []
    # A process of its own for each, so that every first call is one.
    fresh = multiprocessing.get_context("spawn")
    with fresh.Pool(1, maxtasksperchild=1) as pool:
        for schedule in (s for s in SCHEDULES if options.only in s):
            task = (schedule, options.machine, options.rounds)
            rows.append(pool.apply(measure, task))
            write(rows, options)
    show(rows)


def show(rows: list[dict[str, Any]]) -> None:
    """The table: wall milliseconds, with CPU milliseconds in brackets."""
    told = {
        "first": "first ms", "new": "new program ms", "again": "again ms",
        "lower": "lowering ms",
    }  # fmt: skip
    table = Table("schedule", "ops", "units", *told.values())
    for row in rows:
        table.add_row(
            row["schedule"],
            str(row["ops"]),
            str(row["units"]),
            *(
                f"{row[f'{name}_s'] * 1e3:.0f} ({row[f'{name}_process_s'] * 1e3:.0f})"
                for name in told
            ),
        )
    CONSOLE.print(table)


def write(rows: list[dict[str, Any]], options: Options) -> None:
    """Save the results so far, so that an interrupted run keeps them."""
    versions = {"jax": jax.__version__, "python": platform.python_version()}
    found = {**versions, "machine": options.machine, "rows": rows}
    options.save(found)


if __name__ == "__main__":
    main()

"""What simulating a step costs once it is lowered: PartIR's T32 under its schedules.

Milliseconds of `estimate` for the step at full size, as the wall clock and as the process's
own clock tell: of the first call in a process of its own for each schedule, and of the
median of the calls after it. What lowering takes stands beside it.

    python -m benchmarks.simulate_speed [--machine tpu-v3] [--rounds 20] [--only z3]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

import meshwright as mw
from meshwright.lower import lower
from meshwright.machine import load_machine
from meshwright.plan.estimate import estimate
from zoo import gpt

RESULTS = Path(__file__).parent / "results" / "simulate_speed.json"
CONSOLE = Console()
MESH = {"batch": 8, "model": 4}
SCHEDULES = ("bp", "mp", "bp+mp", "bp+mp+z2", "bp+mp+z3", "emb", "bp+mp+z3+emb")


def clocked(run: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of a call by the wall's clock and by the process's."""
    wall_s, own_s = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall_s, time.process_time() - own_s


def measure(schedule: str, machine: str, rounds: int) -> dict[str, Any]:
    """One row."""
    step = mw.partition(gpt.train_step, MESH, gpt.schedules[schedule], gather="at_use")
    decided = step.decide(*gpt.shapes(gpt.T32))
    on = load_machine(machine, 32)
    first_s, first_own_s = clocked(lambda: estimate(decided, on))
    times = [clocked(lambda: estimate(decided, on)) for _ in range(rounds)]
    lowering = [
        clocked(lambda: lower(decided.work.state, decided.gather))[0] for _ in range(3)
    ]
    found = estimate(decided, on)
    return {
        "schedule": schedule,
        "ops": len(decided.lowered.program.ops),
        "units": len(found.units),
        "first_s": first_s,
        "first_process_s": first_own_s,
        "median_s": statistics.median(wall for wall, _ in times),
        "median_process_s": statistics.median(own for _, own in times),
        "least_process_s": min(own for _, own in times),
        "lower_s": statistics.median(lowering),
    }


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", default="tpu-v3")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="schedules whose name holds this")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    # A process of its own for each, so that every first call is one.
    fresh = multiprocessing.get_context("spawn")
    with fresh.Pool(1, maxtasksperchild=1) as pool:
        for schedule in (s for s in SCHEDULES if options.only in s):
            task = (schedule, options.machine, options.rounds)
            rows.append(pool.apply(measure, task))
            write(rows, options.machine)
    show(rows)


def show(rows: list[dict[str, Any]]) -> None:
    """The table: milliseconds by the wall's clock, and by the process's in brackets."""
    table = Table("schedule", "ops", "units", "first ms", "median ms", "lowering ms")
    for row in rows:
        table.add_row(
            row["schedule"],
            str(row["ops"]),
            str(row["units"]),
            f"{row['first_s'] * 1e3:.0f} ({row['first_process_s'] * 1e3:.0f})",
            f"{row['median_s'] * 1e3:.0f} ({row['median_process_s'] * 1e3:.0f})",
            f"{row['lower_s'] * 1e3:.0f}",
        )
    CONSOLE.print(table)


def write(rows: list[dict[str, Any]], machine: str) -> None:
    """Results so far, so that a run that is cut off leaves them."""
    RESULTS.parent.mkdir(exist_ok=True)
    versions = {"jax": jax.__version__, "python": platform.python_version()}
    found = {**versions, "machine": machine, "rows": rows}
    RESULTS.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

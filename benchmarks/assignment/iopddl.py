"""Our solver compared with plain CP-SAT and HiGHS on instances of the IOPDDL contest.

Each runs in a process of its own, reading included, with two workers (HiGHS: one, all
that SciPy gives it) and the same limit. Gaps are to the best bound of the three. Finished
runs are kept in the results.

    python -m benchmarks assignment iopddl FOLDER [--seconds 60] [--only A,B]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import STORED, Options, benchmark, option

SOLVERS = ("ours", "cp-sat", "highs")
GRACE_S = 60.0  # after the limit the process is ended, and counts as without result


def run_solver(solver: str, path: Path, seconds: float, start_s: float) -> None:
    """Print the result of one solver within its time, as JSON."""
    from benchmarks.assignment.plain_solvers import solve_cp_sat, solve_highs
    from meshwright.features.iopddl.problem_file import read_assignment
    from meshwright.search.assignment import solve

    problem = read_assignment(path)
    left_s = seconds * 0.98 - (time.time() - start_s)
    first: list[float] = []
    if solver == "ours":
        found = solve(problem, left_s)
        choices, bound = found.choices, found.bound
        first.append(time.time() - start_s - found.seconds + found.first_s)
    elif solver == "cp-sat":
        choices, bound = solve_cp_sat(
            problem, left_s, on_found=lambda _: first.append(time.time() - start_s)
        )
    else:
        choices, bound = solve_highs(problem, left_s)
    is_feasible = choices is not None and problem.is_feasible(choices)
    told = {
        "cost": problem.cost(choices) if is_feasible else None,
        "bound": bound if math.isfinite(bound) else None,
        "first_s": round(first[0], 2) if first else None,
        "seconds": round(time.time() - start_s, 2),
    }
    print(json.dumps(told))


def measure(solver: str, path: Path, seconds: float) -> dict[str, Any]:
    """The figures of one run; without a cost if it failed or overran."""
    start_s = time.time()
    command = [sys.executable, "-m", "benchmarks.assignment.iopddl", str(path)]
    command += ["--seconds", str(seconds), "--solver", solver, "--start", str(start_s)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + GRACE_S
        )
        told = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, json.JSONDecodeError):
        told = {"cost": None, "bound": None, "first_s": None}
    return {**told, "wall_s": round(time.time() - start_s, 2)}


def table(rows: list[dict[str, Any]]) -> Table:
    """A line for each instance: cost and gap of each solver, and the best bound."""
    shown = Table("instance", "limit s", "best bound", *SOLVERS, "first feasible s")
    for row in rows:
        bounds = [row[s]["bound"] for s in SOLVERS if row[s]["bound"] is not None]
        best = max(bounds, default=math.nan)
        cells: list[str] = []
        for solver in SOLVERS:
            cost = row[solver]["cost"]
            gap = "" if cost is None else f" ({max(0.0, 1 - best / cost):.3%})"
            cells.append("none" if cost is None else f"{cost:.0f}{gap}")
        first = " / ".join(str(row[s]["first_s"]) for s in SOLVERS)
        shown.add_row(row["name"], f"{row['limit_s']:g}", f"{best:.0f}", *cells, first)
    return shown


@benchmark(
    option("folder", type=Path),
    option("--seconds", type=float, default=60.0),
    option("--only", default="", help="letters of instances: A,B"),
    option("--again", choices=SOLVERS, help="measure this one anew"),
    option("--solver", choices=SOLVERS, help=argparse.SUPPRESS),
    option("--start", type=float, help=argparse.SUPPRESS),
    out=STORED,
)
def main(arguments: Options) -> None:
    if arguments.solver:
        run_solver(
            arguments.solver, arguments.folder, arguments.seconds, arguments.start
        )
        return
    rows = arguments.stored([])
    only = [part for part in arguments.only.split(",") if part]
    for path in sorted(arguments.folder.glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz").rpartition("-")[2]
        if only and name not in only:
            continue
        fresh: dict[str, Any] = {"name": name, "limit_s": arguments.seconds}
        row = next((r for r in rows if fresh.items() <= r.items()), fresh)
        for solver in SOLVERS:
            if solver not in row or solver == arguments.again:
                row[solver] = measure(solver, path, arguments.seconds)
        rows = [*(r for r in rows if r is not row), row]
        rows.sort(key=lambda row: (row["name"], row["limit_s"]))
        arguments.save(rows)
    Console(width=160).print(table(rows))


if __name__ == "__main__":
    main()

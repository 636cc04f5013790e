"""Speed of this checkout and of another, side by side: planning, simulation, search.

    git worktree add ../before v0.1
    python -m benchmarks partitioning versions ../before [--rounds 3] [--only gpt]

Each measurement is a fresh process; the two checkouts alternate, so that other work on the
machine affects both. CPU seconds of all threads are compared. Each process first plans a
small program, so that imports and compiled kernels do not count. The checkouts need the
public functions `mw.partition`, `plan.on` and `mw.autoplan`, and a `zoo` of their own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks import places
from benchmarks.harness import ONLY, STORED, Options, benchmark, option
from benchmarks.partitioning.version_case import CASES, SEARCHES

CASE = Path(__file__).resolve().with_name("version_case.py")


def run_once(root: Path, case: str) -> dict[str, float]:
    """The figures of one case in a checkout, from a fresh process."""
    paths = os.pathsep.join((str(root / "src"), str(root)))
    done = subprocess.run(
        [sys.executable, str(CASE), case],
        cwd=root,
        env=os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{root}, {case}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(case: str, before: Path, rounds: int) -> dict[str, object]:
    """Medians of both checkouts, and the ratios of this one to the other."""
    found: dict[Path, list[dict[str, float]]] = {places.ROOT: [], before: []}
    for _ in range(rounds):
        for root, rows in found.items():
            rows.append(run_once(root, case))
    now, then = (
        {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for rows in found.values()
    )
    ratios = {key: now[key] / then[key] for key in now}
    return {"case": case, "now": now, "before": then, "ratio": ratios}


@benchmark(
    option("before", type=Path, nargs="?", help="the other checkout"),
    option("--rounds", type=int, default=3),
    ONLY,
    out=STORED,
)
def main(options: Options) -> None:
    """Compare all cases, print their ratios, and write them as JSON."""
    names = [f"plan {name}" for name in CASES] + [f"search {n}" for n in SEARCHES]
    rows = []
    for name in (n for n in names if options.only in n):
        row = compare(name, options.before.resolve(), options.rounds)
        rows.append(row)
        ratios = "  ".join(f"{k} {v:.3f}" for k, v in row["ratio"].items())
        print(f"{name:24} {ratios}", flush=True)
        options.save(rows)


if __name__ == "__main__":
    main()

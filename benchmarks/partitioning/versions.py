"""Speed of this checkout and of another, side by side: planning, simulation, search.

    git worktree add ../before v0.1
    python -m benchmarks partitioning versions ../before [--rounds 3] [--only gpt] [--out FILE]

Each measurement is a fresh process; the two checkouts alternate, so that other work on the
machine affects both. CPU seconds of all threads are compared. Each process first plans a
small program, so that imports and compiled kernels do not count. The checkouts need the
public functions `mw.partition`, `plan.on` and `mw.autoplan`, and a `zoo` of their own.
"""

from __future__ import annotations

from benchmarks import places
import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import meshwright as mw

HERE = places.ROOT
RESULTS = places.RESULTS / "versions.json"
CASES = {
    "gpt:t32": ("bp+mp+z3", {"batch": 8, "model": 4}, "tpu-v3"),
    "gpt3:t24": ("bp+mp", {"batch": 8, "model": 4}, "tpu-v5e"),
    "llm:gpt_350m": ("fsdp", {"data": 8}, "h100"),
    "moe:moe_2_4b": ("dp", {"data": 8}, "tpu-v5p"),
    "resnet:resnet_50": ("dp", {"data": 8}, "tpu-v5e"),
    "unet:ho_cifar10": ("fsdp", {"data": 8}, "tpu-v4"),
    "t5:small": ("dp+mp+z3", {"data": 4, "model": 2}, "tpu-v5e"),
}
"""Schedule, mesh and machine of each program."""

SEARCHES = {"gpt:tiny": 8, "resnet:tiny": 8, "moe:tiny": 8, "gpt3:t24": 16}
"""Number of TPU v5e chips for which a plan of a program is searched."""


def measure_once(case: str) -> None:
    """Print the CPU seconds of one case as JSON, by stage."""
    warm_up()
    kind, _, name = case.partition(" ")
    print(json.dumps(planned(name) if kind == "plan" else searched(name)))


def warm_up() -> None:
    """Plan and simulate a small program."""
    from zoo.gpt import workload

    fn, args = workload.tiny()
    name = next(iter(workload.schedules))
    plan = mw.partition(fn, workload.mesh, workload.schedules[name]).plan(*args)
    _ = plan.on("tpu-v5e").step_time_s


def planned(name: str) -> dict[str, float]:
    """Seconds to capture and partition a program, and to simulate its plan."""
    fn, args, workload = program(name)
    schedule, mesh, machine = CASES[name]
    tactics = workload.schedules[schedule]
    begin = time.process_time()
    plan = mw.partition(fn, mesh, tactics).plan(*args)
    middle = time.process_time()
    step_time_s = plan.on(machine).step_time_s
    end = time.process_time()
    return {
        "partition_s": middle - begin,
        "simulate_s": end - middle,
        "step_time_s": step_time_s,
    }


def searched(name: str) -> dict[str, float]:
    """Seconds of a search, and the step time of the plan that it finds."""
    fn, args, _ = program(name)
    machine = mw.machine("tpu-v5e", chips=SEARCHES[name])
    begin, begin_wall = time.process_time(), time.perf_counter()
    plan = mw.autoplan(fn, args, machine=machine)
    return {
        "search_s": time.process_time() - begin,
        "search_wall_s": time.perf_counter() - begin_wall,
        "step_time_s": plan.step_time_s,
    }


def program(name: str) -> tuple[object, tuple[object, ...], object]:
    """Function, arguments and workload of a program of the zoo."""
    module, _, size = name.partition(":")
    workload = importlib.import_module(f"zoo.{module}").workload
    forms = {f.__name__: f for f in (workload.tiny, *workload.full)}
    return *(forms.get(size) or workload.tiny)(), workload


def run_once(root: Path, case: str) -> dict[str, float]:
    """The figures of one case in a checkout, from a fresh process."""
    paths = os.pathsep.join((str(root / "src"), str(root)))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--one", case],
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
    found: dict[Path, list[dict[str, float]]] = {HERE: [], before: []}
    for _ in range(rounds):
        for root, rows in found.items():
            rows.append(run_once(root, case))
    now, then = (
        {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for rows in found.values()
    )
    ratios = {key: now[key] / then[key] for key in now}
    return {"case": case, "now": now, "before": then, "ratio": ratios}


def main() -> None:
    """Compare all cases, print their ratios, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, nargs="?", help="the other checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure_once(options.one)
        return
    names = [f"plan {name}" for name in CASES] + [f"search {n}" for n in SEARCHES]
    rows = []
    for name in (n for n in names if options.only in n):
        row = compare(name, options.before.resolve(), options.rounds)
        rows.append(row)
        ratios = "  ".join(f"{k} {v:.3f}" for k, v in row["ratio"].items())
        print(f"{name:24} {ratios}", flush=True)
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

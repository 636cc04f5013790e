"""Times of steps on this machine, compared with predictions after its calibration.

Calibrates one device, then runs small steps of the zoo on it under `jax.jit`. A ratio is
predicted over measured time: below 1 the simulator is too optimistic. Times are the best
of several runs; if other work shares the machine, both sides are noisy.

    python -m benchmarks.calibration [--out FILE] [--budget 30] [--only gpt,vit]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import track
from rich.table import Table

import meshwright as mw

RESULTS = Path(__file__).parent / "results" / "calibration.json"
CONSOLE = Console()
STEPS = ("gpt", "llm", "vit", "mixer", "resnet", "unet", "lstm", "gns")


def best_s(fn: Any, args: tuple[Any, ...], runs: int) -> float:
    """The least wall seconds of a call, results awaited, compilation excluded."""
    jax.block_until_ready(fn(*args))
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        times.append(time.perf_counter() - start)
    return min(times)


def compare(name: str, machine: mw.Machine, runs: int) -> dict[str, Any]:
    """One row: the step of a zoo module, predicted and measured."""
    fn, args = import_module(f"zoo.{name}").tiny()
    args = jax.device_put(args, jax.devices()[0])
    plan = mw.partition(fn, {"data": 1}, []).plan(*args)
    predicted_s = plan.on(machine).step_time_s
    measured_s = best_s(jax.jit(fn), args, runs)
    return {
        "step": name,
        "predicted_s": predicted_s,
        "measured_s": measured_s,
        "ratio": predicted_s / measured_s,
    }


def error_of(rows: list[dict[str, Any]]) -> float:
    """The median factor, 1 or more, by which a prediction is off."""
    return statistics.median(max(row["ratio"], 1 / row["ratio"]) for row in rows)


def report(machine: mw.Machine, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The saved results: the machine's figures, the rows and their error."""
    chip = machine.chip
    return {
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "flops_per_s": dict(chip.flops_per_s),
        "vector_flops_per_s": chip.vector_flops_per_s,
        "hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "launch_s": chip.launch_s,
        "efficiency": {name: c.points for name, c in chip.efficiency.items()},
        "median_factor": error_of(rows),
        "rows": rows,
    }


def main() -> None:
    """Calibrate, compare, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--budget", type=float, default=30.0, help="to calibrate, in s")
    parser.add_argument("--runs", type=int, default=20, help="of which the best counts")
    parser.add_argument("--only", default=",".join(STEPS), help="steps, by comma")
    options = parser.parse_args()
    if jax.device_count() > 1 and jax.default_backend() == "cpu":
        parser.error("virtual devices share the cores; unset XLA_FLAGS")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "this-machine.toml"
        mw.calibrate(path, budget_s=options.budget)
        machine = mw.machine(path)  # one chip of it
    names = track(options.only.split(","), "steps", console=CONSOLE, transient=True)
    rows = [compare(name, machine, options.runs) for name in names]
    table = Table("step", "predicted ms", "measured ms", "ratio")
    for row in rows:
        times = (f"{row[key] * 1e3:.2f}" for key in ("predicted_s", "measured_s"))
        table.add_row(row["step"], *times, f"{row['ratio']:.2f}")
    CONSOLE.print(table)
    CONSOLE.print(f"median factor: {error_of(rows):.2f} over {len(rows)} steps")
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(report(machine, rows), indent=1))


if __name__ == "__main__":
    main()

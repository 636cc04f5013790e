"""Predicted computing time of steps, compared with the TPU compiler's estimate.

    python -m benchmarks tpu tpu_time [--compiled FILE] [--out FILE] [--picture FILE]

Reads the results of `tpu_compiler.py --full`: the cycles of all fusions, multiplied
by the trip counts of loops, of steps that were compiled to the end. Collectives and
offloaded gathers have no estimate and are left out on both sides. The chips' shares of
their peaks were fitted to every other case; reported errors are those of the rest.
"""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import Any

from benchmarks.harness import STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from scipy.stats import kendalltau

from benchmarks.tpu.tpu_accuracy import PICTURE, RESULTS, predict
from benchmarks.tpu.tpu_cases import full_cases
from meshwright.machine import load_machine
from meshwright.predict.simulate.timeline import COMPUTE


def rows_of(stored: dict[str, Any]) -> list[dict[str, Any]]:
    """Seconds of each compiled case, by us and by the compiler."""
    rows: list[dict[str, Any]] = []
    for case in full_cases():
        compiled = stored["cases"].get(case.name)
        if compiled is None or not compiled.get("cycles"):
            continue
        clock_hz = load_machine(case.chip, case.program.devices).chip.clock_hz
        assert clock_hz, f"{case.chip} has a clock"
        told_s = compiled["cycles"] / clock_hz
        found_s = predict(case).timeline.busy_s(COMPUTE)
        row = {
            "case": case.name,
            "program": case.program.name,
            "fitted": len(rows) % 2 == 0,
            "compiled_s": told_s,
            "predicted_s": found_s,
            "error": found_s / told_s - 1,
        }
        print(f"{100 * row['error']:+7.1f} %  {case.name}", flush=True)
        rows.append(row)
    return rows


def taus(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Kendall's tau-b of the schedules' predicted and estimated times, by program."""
    found: dict[str, float] = {}
    for name in dict.fromkeys(row["program"] for row in rows):
        mine = [row for row in rows if row["program"] == name]
        if len(mine) > 1:
            ours, theirs = (
                [row[f"{side}_s"] for row in mine] for side in ("predicted", "compiled")
            )
            found[name] = float(kendalltau(ours, theirs).statistic)
    return found


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The errors of all cases: medians, and the mean rank correlation."""
    rest = [abs(row["error"]) for row in rows if not row["fitted"]]
    order = taus(rows)
    return {
        "cases": len(rows),
        "median_of_fitted": statistics.median(
            abs(row["error"]) for row in rows if row["fitted"]
        ),
        "median_of_rest": statistics.median(rest),
        "kendall_tau": order,
        "kendall_tau_mean": statistics.mean(order.values()),
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw predicted over estimated time, one dot per case."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4.8))
    for name in dict.fromkeys(row["program"] for row in rows):
        mine = [row for row in rows if row["program"] == name]
        axes.scatter(
            [1e3 * row["compiled_s"] for row in mine],
            [1e3 * row["predicted_s"] for row in mine],
            s=18,
            label=name,
        )
    ends = [1e3 * f(r["compiled_s"] for r in rows) for f in (min, max)]
    axes.plot(ends, ends, color="gray", linewidth=1)
    low, high = ([part * e for e in ends] for part in (0.85, 1.15))
    axes.fill_between(ends, low, high, color="gray", alpha=0.15)
    axes.set(
        xscale="log", yscale="log", xlabel="compiler's estimate, ms", ylabel="predicted"
    )
    axes.set_title("computing time of a step, and 15 % around it")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


@benchmark(
    option("--compiled", type=Path, default=RESULTS / "tpu_full.json"),
    option("--picture", type=Path, default=PICTURE.with_name("tpu_time.png")),
    out=STORED,
)
def main(options: Options) -> None:
    """Predict, compare, print, save and draw."""
    stored = json.loads(options.compiled.read_text())
    rows = rows_of(stored)
    told = summarise(rows)
    print(json.dumps(told, indent=1))
    result = {"versions": stored["versions"], "summary": told, "cases": rows}
    options.save(result)
    draw(rows, options.picture)


if __name__ == "__main__":
    main()

"""Predictions of steps, compared with the TPU compiler's figures.

    python -m benchmarks tpu tpu_accuracy [--unseen | --strangers] [--compiled FILE]
        [--out FILE] [--picture FILE]

Reads the results of `tpu_compiler.py`, predicts the same cases, prints the errors
and the worst ten, and draws them. All-reduces and reduce-scatters count together, since
the compiler turns one into the other and moves the same bytes.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import places
from benchmarks.harness import Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from benchmarks import strangers
from benchmarks.tpu.tpu_cases import Case, cases, strange_cases, unseen_cases
from meshwright.app.confirm.account import (
    CollectiveTotals,
    collective_totals,
    fusion_flops,
)
from meshwright.machine import load_machine
from meshwright.predict.estimate import Estimate, estimate

RESULTS = places.RESULTS
PICTURE = places.ROOT / "docs" / "pictures" / "tpu_accuracy.png"

GROUPS = {
    "all_gather": "gathers",
    "all_reduce": "reductions",
    "reduce_scatter": "reductions",
    "all_to_all": "all-to-alls",
}
"""Groups of collectives. Permutes are left out: the compiler adds some to align parts."""

WITHIN = 0.10


def predict(case: Case) -> Estimate:
    """The estimate of a case on its machine."""
    decided = case.plan().decided
    assert decided is not None, "a plan that was made here has its program"
    return estimate(decided, load_machine(case.chip, case.program.devices))


def collective_bytes(kinds: Mapping[str, float]) -> dict[str, float]:
    """Bytes of a step by group of collectives, from those by kind."""
    told: dict[str, float] = {}
    for kind, num_bytes in kinds.items():
        if kind in GROUPS:
            told[GROUPS[kind]] = told.get(GROUPS[kind], 0.0) + num_bytes
    return told


def compare(case: Case, compiled: Mapping[str, Any]) -> dict[str, Any]:
    """One row: relative errors; of bytes only for groups that move a MiB or more."""
    found = predict(case)
    peak = found.peak_memory_bytes
    row: dict[str, Any] = {
        "case": case.name,
        "held_out": case.program.held_out,
        "compiled_bytes": compiled["peak_bytes"],
        "predicted_bytes": peak,
        "memory_error": peak / compiled["peak_bytes"] - 1,
        "fits": compiled["fits"],
        "predicted_fits": found.fits,
    }
    if compiled.get("flops"):
        row["flops_error"] = fusion_flops(found.fusions) / compiled["flops"] - 1
    if compiled["fits"]:
        moved, stored = collective_totals(found), compiled["collectives"]
        got = collective_bytes({kind: t.num_bytes for kind, t in moved.items()})
        wanted = collective_bytes(
            {kind: told["bytes"] for kind, told in stored.items()}
        )
        row["seconds_errors"] = seconds_errors(moved, stored)
        row["collective_errors"] = {
            group: got.get(group, 0.0) / size - 1
            for group, size in wanted.items()
            if size >= 2**20
        }
    return row


def seconds_errors(
    moved: Mapping[str, CollectiveTotals], stored: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """By kind, the error of the seconds per byte.

    The scheduler has no estimate for some collectives, so that rates are compared, and only
    those of kinds with an estimate.
    """
    return {
        kind: (ours.scheduler_s / ours.num_bytes)
        / (told["seconds"] / told["timed_bytes"])
        - 1
        for kind, told in stored.items()
        if told.get("timed_bytes", 0) >= 2**20
        and (ours := moved.get(kind)) is not None
        and ours.scheduler_s
    }


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The errors of all cases: medians, and shares within limits."""
    memory = [abs(row["memory_error"]) for row in rows]
    counted = [abs(row["flops_error"]) for row in rows if "flops_error" in row]
    moved = [
        abs(error)
        for row in rows
        for error in row.get("collective_errors", {}).values()
    ]
    timed = [
        abs(error) for row in rows for error in row.get("seconds_errors", {}).values()
    ]
    return {
        "cases": len(rows),
        "memory_median": statistics.median(memory),
        "memory_within_10_percent": _share(e <= WITHIN for e in memory),
        "fits_right": _share(row["fits"] == row["predicted_fits"] for row in rows),
        "flops_median": statistics.median(counted),
        "flops_within_2_percent": _share(e <= 0.02 for e in counted),
        "bytes_median": statistics.median(moved),
        "bytes_within_15_percent": _share(e <= 0.15 for e in moved),
        "seconds_median": statistics.median(timed),
        "seconds_within_15_percent": _share(e <= 0.15 for e in timed),
    }


def _share(found: Iterable[bool]) -> float:
    known = list(found)
    return sum(known) / len(known)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw predicted over compiled memory, one dot per case."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6))
    chips = sorted({row["case"].split("/")[-1].rsplit("-", 1)[0] for row in rows})
    for chip in chips:
        mine = [row for row in rows if f"/{chip}-" in row["case"]]
        left.scatter(
            [row["compiled_bytes"] / 2**30 for row in mine],
            [row["predicted_bytes"] / 2**30 for row in mine],
            s=14,
            label=chip,
        )
    ends = [0.5, 80]
    left.plot(ends, ends, color="gray", linewidth=1)
    left.fill_between(
        ends, [0.9 * e for e in ends], [1.1 * e for e in ends], color="gray", alpha=0.15
    )
    left.set(
        xscale="log", yscale="log", xlabel="compiled, GiB a device", ylabel="predicted"
    )
    left.set_title("memory, and 10 % around it")
    left.legend()
    errors = sorted(100 * row["memory_error"] for row in rows)
    right.plot(errors, marker=".", linewidth=0)
    right.axhspan(-10, 10, color="gray", alpha=0.15)
    right.set(xlabel="case, by error", ylabel="error of memory, %")
    right.set_title(f"{len(rows)} cases")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def parts_of(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by whether rules were found on them; strangers by group."""
    parts: dict[str, list[dict[str, Any]]] = {"held out": [], "read off": []}
    for row in rows:
        name = row["case"].split("/")[0]
        part = "held out" if row["held_out"] else "read off"
        for known in ("first", "second", "third", "fourth"):
            if name in getattr(strangers, known):
                part = known
        parts.setdefault(part, []).append(row)
    return {**parts, "all": rows}


@benchmark(
    (
        option("--unseen", action="store_true", help="steps on other chips"),
        option("--strangers", action="store_true", help="none of the zoo's"),
    ),
    option("--compiled", type=Path),
    option("--picture", type=Path),
)
def main(options: Options) -> None:
    """Predict, compare, print, save and draw."""
    read, written, offered = "tpu_memory.json", "tpu_accuracy.json", list(cases())
    if options.unseen:
        read, written = "tpu_unseen.json", "tpu_unseen_accuracy.json"
        offered = unseen_cases()
    elif options.strangers:
        read, written = "tpu_strangers.json", "tpu_strangers_accuracy.json"
        offered = list(strange_cases())
    stored = json.loads((options.compiled or RESULTS / read).read_text())
    rows = []
    missing = sorted({case.name for case in offered} - stored["cases"].keys())
    if missing:
        print(f"not compiled yet: {', '.join(missing)}")
    for case in offered:
        compiled = stored["cases"].get(case.name)
        if compiled is not None and "error" not in compiled:
            rows.append(compare(case, compiled))
            print(f"{100 * rows[-1]['memory_error']:+7.1f} %  {case.name}", flush=True)
    told = {name: summarise(part) for name, part in parts_of(rows).items() if part}
    for part, figures in told.items():
        print(part)
        for name, value in figures.items():
            print(f"  {name:28} {value:.4g}")
    worst = sorted(rows, key=lambda row: -abs(row["memory_error"]))[:10]
    print("worst ten")
    for row in worst:
        print(f"{100 * row['memory_error']:+7.1f} %  {row['case']}")
    result = {"versions": stored["versions"], "summary": told, "cases": rows}
    options.out = options.out or RESULTS / written
    options.save(result)
    if options.picture or written == "tpu_accuracy.json":
        draw(rows, options.picture or PICTURE)


if __name__ == "__main__":
    main()

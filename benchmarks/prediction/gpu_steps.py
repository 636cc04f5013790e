"""Simulated rates of published train steps on GPUs, beside the rates that were measured.

    python -m benchmarks prediction gpu_steps [--only TEXT] [--again]

The steps are those of `published_steps.py` and `published_jax.py`, which name the sources.
Then one table after another is left out: the clock of each chip is chosen by the other
tables, and the errors of the one that was left out are printed. No other constant followed
from rows.

Resumable: cases in the results file are not simulated again, unless `--again` is given.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from benchmarks.harness import ONLY, STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from benchmarks.prediction.published_jax import jax_cases, llama2_7b
from benchmarks.prediction.published_steps import MEGATRON, SCALING, Case
from meshwright.machine import Curve, Machine, load_machine

CASES = (*MEGATRON, llama2_7b(), *jax_cases())

PRESET = {"a100-80g": 0.93, "h100": 0.85}
"""Clocks of long runs, as shares of that of short ones, in the presets' efficiencies."""

LOWER = {"a100-80g": 0.86, "h100": 0.80}
"""Other clocks at which each case is simulated."""

CLOCKS = {
    "a100-80g": (0.86, 0.88, 0.90, 0.92, 0.93, 0.94, 0.96, 0.98, 1.0),
    "h100": (0.80, 0.82, 0.84, 0.86, 0.88, 0.90, 0.92, 0.95),
}
"""Clocks to choose from; of H100 within the range that its preset states."""

PARTS = {"cases": CASES, "scaling": SCALING}

Row = dict[str, float]


def machine_at(case: Case, clock: float) -> Machine:
    """The machine of a case with another clock of long runs."""
    machine = load_machine(case.machine, prod(case.mesh.values()))
    chip = machine.chip
    scale = clock / PRESET[case.machine]
    points = chip.efficiency["product"].points
    product = Curve(tuple((size, scale * share) for size, share in points))
    efficiency = {**chip.efficiency, "product": product}
    return replace(machine, chip=replace(chip, efficiency=efficiency))


def simulated(case: Case) -> Row:
    """The rate of a case at the preset's clock, and at the lower one."""
    plan = case.plan()
    ratio, lower = (
        case.ratio(plan, machine_at(case, clocks[case.machine]))
        for clocks in (PRESET, LOWER)
    )
    rates = {"simulated": ratio * case.measured, "measured": case.measured}
    return {**rates, "ratio": ratio, "ratio_at_lower_clock": lower}


def ratio_at(case: Case, row: Row, clock: float) -> float:
    """Simulated by measured rate at a clock.

    The seconds of a step are linear in those of a cycle, but for kernels near the ridge of
    the roofline.
    """
    preset, lower = 1 / PRESET[case.machine], 1 / LOWER[case.machine]
    far = (1 / clock - preset) / (lower - preset)
    first, second = 1 / row["ratio"], 1 / row["ratio_at_lower_clock"]
    return 1 / (first + far * (second - first))


def error(ratios: Iterable[float]) -> float:
    """The median of the relative errors."""
    return statistics.median(abs(ratio - 1) for ratio in ratios)


def left_out(rows: Mapping[str, Row]) -> dict[str, Row]:
    """By chip and table: the clock that the other tables choose, and the table's error."""
    chips: defaultdict[str, list[Case]] = defaultdict(list)
    for case in CASES:
        chips[case.machine].append(case)
    found: dict[str, Row] = {}
    for chip, cases in chips.items():
        for table in dict.fromkeys(case.table for case in cases):
            others = [case for case in cases if case.table != table]
            kept = [case for case in cases if case.table == table]

            def error_at(clock: float, some: list[Case]) -> float:
                return error(ratio_at(case, rows[case.name], clock) for case in some)

            clock = min(CLOCKS[chip], key=lambda k, some=others: error_at(k, some))
            found[f"{chip} {table}"] = {
                "clock": clock,
                "median_error": error_at(clock, kept),
                "median_error_at_preset": error_at(PRESET[chip], kept),
            }
    return found


@benchmark(
    ONLY,
    option("--again", action="store_true", help="simulate known cases again"),
    out=STORED,
)
def main(options: Options) -> None:
    """Simulate the cases, print and save their rates beside the measured ones."""
    found = {} if options.again else options.stored({})
    for part, cases in PARTS.items():
        rows: dict[str, Row] = found.setdefault(part, {})
        for case in cases:
            if options.only not in case.name:
                continue
            row = rows[case.name] = rows.get(case.name) or simulated(case)
            options.save(found)
            rates = f"{row['simulated']:9.4g} {row['measured']:9.4g}"
            print(f"{case.name:20} {part:12} {rates} {row['ratio']:6.2f}", flush=True)
    rows = found["cases"]
    if len(rows) < len(CASES):
        return
    found["left_out"] = left_out(rows)
    for name, row in found["left_out"].items():
        print(name, *(f"{key} {value:.3f}" for key, value in row.items()))
    found["median_error"] = error(row["ratio"] for row in rows.values())
    print(f"median error {found['median_error']:.1%}")
    options.save(found)


if __name__ == "__main__":
    main()

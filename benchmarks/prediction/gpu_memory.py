"""Predicted memory and traffic of steps on eight H100, compared with the GPU compiler's.

    python -m benchmarks prediction gpu_memory [--only TEXT] [--known] [--keep DIR]

Compiled are train steps of the zoo with schedules of `tpu/tpu_cases.py`, and the plans
that `autoplan` finds for such steps. A found plan is kept with its tactics, so that later
predictions are of the same plan. New cases need `meshwright[gpu]`, but no GPU.

Traffic is the bytes that all kernels of a step read and write in main memory.

Resumable: cases in the results file are not compiled again, only predicted.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import ONLY, STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import meshwright as mw
from benchmarks.prediction.hlo_traffic import traffic_bytes
from benchmarks.tpu.tpu_cases import Case as ScheduleCase
from benchmarks.tpu.tpu_cases import Program, held_out, programs
from meshwright.app.plan import Plan
from meshwright.app.tactic_text import parse_tactics
from meshwright.machine import load_machine
from meshwright.predict.simulate.timeline import kernel_runs

MACHINE, CHIPS = "h100", 8
WITHIN = 0.10
FOUND = "found"
"""Schedule of cases whose plan `autoplan` finds."""

SCHEDULES: Mapping[str, str] = {
    "gpt.t32-2l": "bp+mp+z3",
    "llm.gpt_125m": "dp+megatron",
    "llm.gpt_350m": "fsdp",
    "vit.b_16": "dp",
    "resnet.resnet_50": "dp",
    "unet.ho_cifar10": "dp+mp+z3",
    "gns.edges_8192": "es",
}
"""A schedule by program."""

SEARCHED = (
    "gpt.t32-2l", "gpt3.t24-3l", "llm.gpt_125m", "llm.gpt_350m", "vit.b_16", "moe.moe_690m",
    "t5.base", "primer.primer_small", "resnet.resnet_50", "unet.ho_cifar10", "mixer.b_16",
    "gns.edges_8192",
)  # fmt: skip
"""Programs for which `autoplan` finds a plan."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A program with a schedule of its module, or with a plan that is found."""

    program: Program
    schedule: str

    @property
    def name(self) -> str:
        """The key of the case in the results."""
        return f"{self.program.name}/{self.schedule}"

    def plan(self, row: Row, budget_s: float) -> Plan:
        """The plan on the machine; a found one comes from `row` if that has it."""
        machine = load_machine(MACHINE, CHIPS)
        if self.schedule != FOUND:
            plan = ScheduleCase(self.program, self.schedule, MACHINE).plan()
            return plan.on(machine)
        fn, args = self.program.build()
        if "tactics" in row:
            tactics = parse_tactics(row["tactics"])
            made = mw.partition(fn, row["mesh"], tactics).plan(*args)
            return made.on(machine, donate_state=True)
        return mw.autoplan(fn, args, machine=machine, budget_s=budget_s)


def cases() -> Iterator[Case]:
    """Cases with schedules, then those with found plans."""
    known = {program.name: program for program in (*programs(), *held_out())}
    for name, schedule in SCHEDULES.items():
        yield Case(known[name], schedule)
    for name in SEARCHED:
        yield Case(known[name], FOUND)


def compiled(plan: Plan, folder: Path | None) -> dict[str, int]:
    """Bytes of memory that the GPU compiler assigns on one device, and of traffic."""
    with TemporaryDirectory() as made:
        folder = folder or Path(made)
        told = plan.confirm("gpu", folder=folder)
        (optimized,) = folder.glob("dump/*gpu_after_optimizations.txt")
        traffic = traffic_bytes(optimized.read_text())
    assert told.compiled.peak_bytes is not None, "the compiler reports memory"
    memory = int(told.compiled.peak_bytes)
    return {"compiled_bytes": memory, "compiled_traffic_bytes": traffic}


def predicted_traffic(plan: Plan) -> int:
    """Bytes that the predicted kernels of one device read and write in a step."""
    assert plan.estimate is not None, "the plan is on a machine"
    runs = kernel_runs(plan.estimate.timeline)
    return round(sum(times * span.num_bytes for span, times in runs))


def predict(case: Case, row: Row, options: Options) -> Row:
    """The row of a case, whose plan is searched and compiled if `row` lacks it."""
    plan = case.plan(row, options.budget)
    if case.schedule == FOUND and "tactics" not in row:
        row |= {"mesh": dict(plan.mesh.sizes), "tactics": plan.code}
    if "compiled_bytes" not in row:
        folder = options.keep and options.keep / case.name.replace("/", "_")
        row |= compiled(plan, folder)
    row["predicted_bytes"] = plan.peak_memory_bytes
    row["predicted_traffic_bytes"] = predicted_traffic(plan)
    row["error"] = row["predicted_bytes"] / row["compiled_bytes"] - 1
    usable = load_machine(MACHINE, CHIPS).chip.usable_bytes
    row["fits"], row["predicted_fits"] = row["compiled_bytes"] <= usable, plan.fits
    return row


def traffic_error(row: Row) -> float:
    """Relative error of the predicted traffic of a case."""
    return abs(row["predicted_traffic_bytes"] / row["compiled_traffic_bytes"] - 1)


def summarise(rows: Mapping[str, Row]) -> dict[str, float]:
    """The errors of all cases: median, largest, and share within a limit."""
    known = [row for row in rows.values() if "error" in row]
    errors = [abs(row["error"]) for row in known]
    return {
        "cases": len(errors),
        "median": statistics.median(errors),
        "largest": max(errors),
        "within_10_percent": sum(e <= WITHIN for e in errors) / len(errors),
        "median_traffic": statistics.median(
            traffic_error(row) for row in known if "predicted_traffic_bytes" in row
        ),
        "fits_right": sum(r["fits"] == r["predicted_fits"] for r in known),
    }


@benchmark(
    ONLY,
    option("--known", action="store_true", help="compile no new cases"),
    option("--keep", type=Path, help="folder for the compiler's files"),
    option("--budget", type=float, default=15.0, help="of a search"),
    out=STORED,
)
def main(options: Options) -> None:
    """Search and compile new cases, predict all, print and save."""
    known = options.stored({})
    rows: dict[str, Row] = dict(known.get("cases", {}))
    for case in cases():
        is_known = "compiled_bytes" in rows.get(case.name, {})
        if options.only not in case.name or (options.known and not is_known):
            continue
        row = rows[case.name] = predict(case, dict(rows.get(case.name, {})), options)
        print(line_of(case.name, row), flush=True)
        found = {"jax": version("jax"), "summary": summarise(rows), "cases": rows}
        options.save(found)
    for name, value in summarise(rows).items():
        print(f"{name:20} {value:.4g}")


def line_of(name: str, row: Row) -> str:
    """The figures of a case in one line."""
    left, right = (row[key] / 2**30 for key in ("predicted_bytes", "compiled_bytes"))
    wrong = "" if row["fits"] == row["predicted_fits"] else ", fits: wrong"
    moved = row["predicted_traffic_bytes"] / row["compiled_traffic_bytes"] - 1
    memory = f"{left:8.2f} {right:8.2f} GiB {100 * row['error']:+7.1f} %{wrong}"
    return f"{name:28} {memory}, traffic {100 * moved:+6.1f} %"


if __name__ == "__main__":
    main()

"""Found plans and the experts' best, both compiled by the real TPU compiler.

Compiled are the plan that `autoplan` returns and the fastest expert's plan that fits, with
the recomputation that the search added. Seconds of computation are the compiler's estimate
of its own code. Seconds of collectives are its scheduler's estimate, as if none overlapped
with computation. Where it has no estimate, as on v5p, the seconds of our links are taken
for all collectives, hidden or not. Needs `meshwright[tpu]`.

    python -m benchmarks search confirm_found [--only d4pg] [--machines tpu-v5e]

Resumable: cases in the results file are not run again.
"""

from __future__ import annotations

import importlib
import json
from statistics import geometric_mean
from typing import Any

import jax

import meshwright as mw
from benchmarks import places
from benchmarks.harness import ONLY, STORED, Options, benchmark, option
from benchmarks.search.autoplan import MACHINES, OTHERS, TRANSFORMERS
from meshwright.app.plan import Plan
from meshwright.errors import MeshwrightError
from meshwright.machine import Machine, load_machine
from meshwright.planner.candidates.expert_plans import expert_strategies
from meshwright.planner.candidates.meshes import meshes_of
from meshwright.planner.candidates.proposal import FOUND
from meshwright.planner.driver.plan_as_tactics import SPELLED

FOUND_ROWS = places.RESULTS / "autoplan.json"
KNOWN_MACHINES = ("tpu-v5e", "tpu-v5p")
"""Machines of `benchmarks.search.autoplan` with one device per chip in the TPU compiler."""


def run_case(target: str, machine_name: str, budget_s: float) -> dict[str, Any]:
    """Search once more, then compile the found plan and the expert's."""
    module, name = target.split(":")
    workload = importlib.import_module(f"zoo.{module}").workload
    (make,) = (f for f in workload.full if f.__name__ == name)
    fn, args = make()
    machine = load_machine(machine_name, None, MACHINES[machine_name])
    found = mw.autoplan(fn, args, machine=machine, budget_s=budget_s)
    row: dict[str, Any] = {"mesh": str(found.mesh)}
    told = json.loads(FOUND_ROWS.read_text())["cases"][f"{target} {machine_name}"]
    expert = _expert(fn, args, found, machine, told)
    if expert is not None:
        row |= {"expert_name": expert[0], "expert_mesh": str(expert[1].mesh)}
        row |= {"expert": _compiled(expert[1])}
    return row | {"found": _compiled(found)}


def _expert(
    fn: Any, args: Any, found: Plan, machine: Machine, told: dict[str, Any]
) -> tuple[str, Plan] | None:
    """The fastest expert's plan that fits, here and in `benchmarks.search.autoplan`."""
    assert found.search is not None, "autoplan says how it searched"
    tried = [
        (c.name, c.mesh, c.tactics)
        for c in sorted(found.search.candidates, key=lambda c: c.step_time_s)
        if c.name not in (FOUND, SPELLED) and c.fits
    ][:1]
    meshes = {str(mesh): mesh for mesh in meshes_of(machine)}
    if "expert" in told:
        mesh = meshes[told["expert_mesh"]]
        tried.append((told["expert"], mesh, expert_strategies(mesh)[told["expert"]]))
    plans = [
        (name, plan)
        for name, mesh, tactics in tried
        for plan in [
            mw.partition(fn, mesh, tactics).plan(*args).on(machine, donate_state=True)
        ]
        if plan.fits
    ]
    return min(plans, key=lambda each: each[1].step_time_s, default=None)


def _compiled(plan: Plan) -> dict[str, float]:
    told = plan.confirm("tpu", full=True, donate_state=True)
    compute_s = told.compiled.compute_s or 0.0
    seconds = [each.scheduler_s for each in (told.compiled.collectives or {}).values()]
    if None in seconds:
        ours = (told.predicted.collectives or {}).values()
        seconds = [each.seconds for each in ours]
    collective_s = sum(each or 0.0 for each in seconds)
    return {
        "predicted_s": plan.step_time_s,
        "compute_s": compute_s,
        "collective_s": collective_s,
        "compiled_s": compute_s + collective_s,
        "predicted_bytes": told.predicted.peak_bytes,
        "compiled_bytes": told.compiled.peak_bytes,
        "compile_s": told.compile_s,
    }


@benchmark(
    ONLY,
    option("--machines", default=",".join(KNOWN_MACHINES)),
    option("--budget", type=float, default=15.0),
    out=STORED,
)
def main(options: Options) -> None:
    """Run the cases asked for, and print one line for each."""
    rows: dict[str, Any] = options.stored({"cases": {}})["cases"]
    for name in options.machines.split(","):
        for target in (*OTHERS, *TRANSFORMERS):
            key = f"{target} {name}"
            if key in rows or options.only not in target:
                continue
            try:
                rows[key] = run_case(target, name, options.budget)
            except MeshwrightError as error:
                print(f"{key:34s} {error}", flush=True)
                continue
            print(line_of(key, rows[key]), flush=True)
            told = {"jax": jax.__version__, "cases": rows}
            options.save(told)
    ratios = [ratio for row in rows.values() if (ratio := ratio_of(row)) is not None]
    if ratios:
        print(f"geometric mean of {len(ratios)}: {geometric_mean(ratios):.3f}")


def ratio_of(row: dict[str, Any]) -> float | None:
    """Compiled time of the found plan divided by that of the expert's."""
    if "expert" not in row:
        return None
    return row["found"]["compiled_s"] / row["expert"]["compiled_s"]


def line_of(key: str, row: dict[str, Any]) -> str:
    """The figures of a case in one line."""
    told = [f"{key:34s} {row['mesh']:18} {row['found']['compiled_s'] * 1e3:9.3f} ms"]
    if (ratio := ratio_of(row)) is not None:
        told.append(f"{row['expert_name']} on {row['expert_mesh']}")
        told.append(f"{row['expert']['compiled_s'] * 1e3:9.3f} ms, {ratio:.2f}")
        predicted = row["found"]["predicted_s"] / row["expert"]["predicted_s"]
        told.append(f"predicted {predicted:.2f}")
    return ", ".join(told)


if __name__ == "__main__":
    main()

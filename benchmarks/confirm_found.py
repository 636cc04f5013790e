"""Found plans and the experts' best, both compiled by the real TPU compiler.

For the plan that `autoplan` returns and for the fastest of the experts' that fits by
itself, on 32 chips of TPU v5e: seconds of computation by the compiler's estimate of its
own code, and of collectives as its scheduler counts them, as if none ran beside
computation. Needs `meshwright[tpu]`.

    python -m benchmarks.confirm_found [--only d4pg] [--budget 15]

Resumable: cases in the results file are not run again.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import jax

import meshwright as mw
from benchmarks.autoplan import OTHERS, TRANSFORMERS
from meshwright.autoplan.meshes import experts_of, meshes_of, shape_text
from meshwright.errors import MeshwrightError
from meshwright.machine import Machine, load_machine
from meshwright.plan import Plan

RESULTS = Path(__file__).parent / "results" / "confirm_found.json"
FOUND_ROWS = Path(__file__).parent / "results" / "autoplan.json"
MACHINE, CHIPS = "tpu-v5e", 32


def run_case(target: str, machine: Machine, budget_s: float) -> dict[str, Any]:
    """Search once more, then compile the found plan and the expert's."""
    module, name = target.split(":")
    workload = importlib.import_module(f"zoo.{module}").workload
    (make,) = (f for f in workload.full if f.__name__ == name)
    fn, args = make()
    found = mw.autoplan(fn, args, machine=machine, budget_s=budget_s)
    expert = _expert(fn, args, target, machine)
    row = {"found": _compiled(found), "mesh": shape_text(found.mesh)}
    if expert is not None:
        row |= {"expert": _compiled(expert)}
    return row


def _expert(fn: Any, args: Any, target: str, machine: Machine) -> Plan | None:
    """The best expert's plan of the search's own benchmark, if one fitted by itself."""
    row = json.loads(FOUND_ROWS.read_text())["cases"][f"{target} {MACHINE}"]
    meshes = {shape_text(mesh): mesh for mesh in meshes_of(machine)}
    if "expert" not in row:
        return None
    mesh = meshes[row["expert_mesh"]]
    tactics = experts_of(mesh)[row["expert"]]
    plan = mw.partition(fn, mesh, tactics).plan(*args).on(machine, donate_state=True)
    return plan if plan.fits else None


def _compiled(plan: Plan) -> dict[str, float]:
    told = plan.confirm("tpu", full=True, donate_state=True)
    compute_s = told.compiled.compute_s or 0.0
    traffic = (told.compiled.collectives or {}).values()
    collective_s = sum(each.believed_s or 0.0 for each in traffic)
    return {
        "predicted_s": plan.step_time_s,
        "compute_s": compute_s,
        "collective_s": collective_s,
        "compiled_s": compute_s + collective_s,
        "predicted_bytes": told.predicted.peak_bytes,
        "compiled_bytes": told.compiled.peak_bytes,
        "compile_s": told.compile_s,
    }


def main() -> None:
    """Run what is asked for, and print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--budget", type=float, default=15.0)
    options = parser.parse_args()
    rows: dict[str, Any] = {}
    if RESULTS.is_file():
        rows = json.loads(RESULTS.read_text())["cases"]
    machine = load_machine(MACHINE, None, CHIPS)
    for target in (*OTHERS, *TRANSFORMERS):
        if target in rows or options.only not in target:
            continue
        try:
            rows[target] = run_case(target, machine, options.budget)
        except MeshwrightError as error:
            print(f"{target:30s} {error}", flush=True)
            continue
        row = rows[target]
        line = f"{target:30s} found {row['found']['compiled_s'] * 1e3:9.3f} ms"
        if "expert" in row:
            line += f", expert {row['expert']['compiled_s'] * 1e3:9.3f} ms"
        print(line, flush=True)
        told = {"jax": jax.__version__, "cases": rows}
        RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    ratios = [
        row["found"]["compiled_s"] / row["expert"]["compiled_s"]
        for row in rows.values()
        if "expert" in row
    ]
    if ratios:
        print(f"geometric mean of {len(ratios)}: {geometric_mean(ratios):.3f}")


if __name__ == "__main__":
    main()

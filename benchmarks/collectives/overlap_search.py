"""Plans of `autoplan` with and without product loops: programs of the zoo on TPU meshes.

    python -m benchmarks collectives overlap_search [--only vit] [--budget 15]

Resumable: cases in the results file are not run again. One search finds both plans:
those with product loops (`mw.overlap`) have ", overlapped" in their names, and the best
of the others is the plan of a search without loops.
"""

from __future__ import annotations

import importlib
import json
import os
import time

from benchmarks.harness import ONLY, STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import meshwright as mw
from meshwright.errors import MeshwrightError
from meshwright.planner.driver.overlapping import OVERLAPPED

PROGRAMS = (
    "mixer:b_16", "vit:l_16", "lstm:big_lstm", "gpt3:t24", "primer:primer_medium",
    "t5:base", "resnet:resnet_50", "ranking:web30k",
)  # fmt: skip

MESHES = (
    ("tpu-v4", {"data": 16, "model": 4}),
    ("tpu-v4", {"data": 4, "model": 8}),
    ("tpu-v5e", {"data": 4, "model": 4}),
)

Row = dict[str, object]


def run_case(target: str, machine: str, mesh: dict[str, int], budget_s: float) -> Row:
    """The best step with and without product loops, from one search."""
    module, name = target.split(":")
    workload = importlib.import_module(f"zoo.{module}").workload
    (make,) = (f for f in workload.full if f.__name__ == name)
    fn, args = make()
    started = time.process_time()
    try:
        plan = mw.autoplan(fn, args, machine=machine, mesh=mesh, budget_s=budget_s)
    except MeshwrightError as error:
        return {"error": str(error)}
    assert plan.search is not None
    found = plan.search.candidates
    plain = next(c for c in found if c.fits and not c.name.endswith(OVERLAPPED))
    waited = dict(plain.breakdown)
    kinds = ("all_gather", "reduce_scatter")
    waited_s = sum(waited.get(f"{kind} exposed", 0.0) for kind in kinds)
    return {
        "plain": plain.name,
        "plain_s": plain.step_time_s,
        "waited_s": waited_s,
        "best": found[0].name,
        "best_s": found[0].step_time_s,
        "ratio": plain.step_time_s / found[0].step_time_s,
        "num_overlapped": sum(c.name.endswith(OVERLAPPED) for c in found),
        "work_s": plan.search.work_s,
        "cpu_s": round(time.process_time() - started, 1),
    }


@benchmark(
    ONLY,
    option("--budget", type=float, default=15.0),
    out=STORED,
)
def main(options: Options) -> None:
    """Run all cases, write each result at once, and print the table."""
    rows: dict[str, Row] = options.stored({})
    for target in PROGRAMS:
        for machine, mesh in MESHES:
            key = f"{target} {machine} {'x'.join(map(str, mesh.values()))}"
            if options.only not in target:
                continue
            if key not in rows:
                rows[key] = run_case(target, machine, mesh, options.budget)
                options.save(rows)
            print(key, json.dumps(rows[key]), flush=True)


if __name__ == "__main__":
    main()

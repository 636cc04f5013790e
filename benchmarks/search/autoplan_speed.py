"""Seconds of a search for large models: T24, T32, T48, GPT-39B, MoE-10B, GPT-175B.

Whole calls, capture included, with the default budget; GPT-175B, whose 96 layers are
written out, with 60 s.

    python -m benchmarks search autoplan_speed [--only t48]
"""

from __future__ import annotations

import importlib
import json
import time

import meshwright as mw
from benchmarks.harness import ONLY, STORED, Options, benchmark
from meshwright.errors import MeshwrightError

CASES = {
    "gpt3:t24": ("tpu-v3", 16, 15.0),
    "gpt:t32": ("tpu-v5p", 64, 15.0),
    "gpt:t48": ("tpu-v5p", 64, 15.0),
    "llm:alpa_39b": ("h100", 64, 15.0),
    "moe:moe_10b": ("h100", 64, 15.0),
    "llm:gpt_175b_unrolled": ("tpu-v5p", 512, 60.0),
}
"""Machine, chips and budget in seconds, by program."""


def run_case(target: str) -> dict[str, object]:
    """Seconds of one search, and the step time of its plan."""
    machine, chips, budget_s = CASES[target]
    module, name = target.split(":")
    workload = importlib.import_module(f"zoo.{module}").workload
    (make,) = (f for f in workload.full if f.__name__ == name)
    fn, args = make()
    row: dict[str, object] = {"machine": machine, "chips": chips, "budget_s": budget_s}
    started = time.monotonic()
    try:
        plan = mw.autoplan(fn, args, machine=machine, chips=chips, budget_s=budget_s)
    except MeshwrightError as error:
        row["error"] = str(error)
    else:
        row |= {"step_time_s": plan.step_time_s, "mesh": str(plan.mesh)}
        assert plan.search is not None
        row["plan"] = plan.search.candidates[0].name
        row["search_s"] = plan.search.seconds
    return row | {"seconds": time.monotonic() - started}


@benchmark(ONLY, out=STORED)
def main(options: Options) -> None:
    """Run the cases, and print one line for each."""
    rows: dict[str, object] = options.stored({})
    for target in CASES:
        if options.only in target:
            rows[target] = row = run_case(target)
            print(target, json.dumps(row), flush=True)
            options.save(rows)


if __name__ == "__main__":
    main()

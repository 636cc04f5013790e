"""Engines that search for a design, at equal trials: performance per peak power found.

Within area and power of TPU v3 at 7 nm, as in `fast_designs`. A search that is in the
results file is not repeated, so that a run that was stopped goes on.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.codesign.fast_designs import HOME
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.codesign import accelerator as acc
from meshwright.search.engines.annealing import Annealing
from meshwright.search.trials import Scalarised, TrialEngine

ENGINES = (
    "random", "ageing", "nsga2", "cross-entropy", "firefly", "annealing", "tpe",
)  # fmt: skip


@benchmark(
    option("--program", default="bert_base", help="program to search designs for"),
    option("--trials", type=int, default=2000, help="designs that each search tries"),
    option("--seeds", type=int, default=5, help="searches of each engine"),
    option("--engines", default=",".join((*ENGINES, "default")), help="with commas"),
    out=STORED,
)
def main(options: Options) -> None:
    """Print the median and range of each engine, seed by seed."""
    part = f"{options.program}, {options.trials} trials"
    names = options.engines.split(",")
    for seed in range(options.seeds):
        for name in names:
            known = options.stored_part(part).get(name, {}).get("by_seed", {})
            if str(seed) in known:
                continue
            by_seed = {**known, str(seed): best_of(options, name, seed)}
            options.save_case(part, name, figures(by_seed))


def best_of(options: Options, name: str, seed: int) -> float:
    """Performance per peak power of the best design of one search."""
    base = acc.die_shrunk()
    engine = {} if name == "default" else {"engine": engine_of(name, seed)}
    found = acc.search_design(
        [f"{HOME}:{options.program}"], area_mm2=base.area_mm2, tdp_w=base.tdp_w,
        trials=options.trials, seed=seed, **engine,
    )  # fmt: skip
    return float(found.trial.values["perf_per_tdp"])


def engine_of(name: str, seed: int) -> str | TrialEngine:
    """The engine of a name; annealing takes minus the performance per peak power."""
    if name == "annealing":
        return Scalarised(Annealing(seed), lambda found: -found["perf_per_tdp"])
    return name


def figures(by_seed: dict[str, float]) -> dict[str, Any]:
    """The range of an engine's searches, and each."""
    found = by_seed.values()
    return {
        "median": statistics.median(found),
        "least": min(found),
        "most": max(found),
        "by_seed": by_seed,
    }


if __name__ == "__main__":
    main()

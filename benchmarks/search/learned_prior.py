"""The learned prior on programs that it was not trained on, compared with kinds of cuts.

For each program, mesh and prior: the number of 25 runs in which MCTS comes within 2 % of
the best cost that any run found, by budget of trajectories. The best cost also takes longer
runs with either prior into account. Seconds are CPU seconds, prior and features included.

    python -m benchmarks search learned_prior [--seeds 25]
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from importlib import import_module
from statistics import fmean, median
from typing import Any

from benchmarks.harness import STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import meshwright as mw
from benchmarks.search.success_curve import ENGINES, run_seed
from meshwright.machine import Mesh, load_machine
from meshwright.planner.solve.space import Space
from meshwright.planner.tree.cut_problem import CutProblem
from meshwright.planner.tree.tree_search import make_problem

CASES = (
    ("gpt3:t24", "tpu-v5e", {"data": 4, "model": 8}),
    ("gpt:t32", "tpu-v3", {"data": 8, "model": 4}),
    ("vit:l_16", "tpu-v5e", {"data": 8, "model": 4}),
    ("gns:edges_8192", "tpu-v5e", {"data": 16, "model": 2}),
    ("lstm:big_lstm", "tpu-v5e", {"data": 16, "model": 2}),
    ("ranking:web30k", "tpu-v5e", {"data": 16, "model": 2}),
    ("unet3d:cicek", "tpu-v5e", {"data": 8, "model": 4}),
)
"""Programs, chips and meshes; of no family in `benchmarks.train.train_prior`."""

NAMES = ("mcts, learned", "mcts, kinds")
BUDGETS = (10, 25, 50, 100)
LONG, LONG_SEEDS = 1000, range(1000, 1003)
NEAR = 1.02


def problem_at(program: str, chip: str, sizes: Mapping[str, int]) -> CutProblem:
    """The search problem of a program of the zoo on a mesh."""
    module, name = program.split(":")
    targets = import_module(f"zoo.{module}")
    fn, args = (getattr(targets, name, None) or targets.targets[name])()
    mesh = Mesh(sizes)
    captured = mw.partition(fn, mesh).capture(*args)
    machine = load_machine(chip, math.prod(sizes.values()))
    return make_problem(Space(captured, machine), mesh)


def measure(problem: CutProblem, num_seeds: int) -> dict[str, Any]:
    """Success by budget, and CPU seconds, of each prior on one problem."""
    long = {
        name: [
            run_seed(problem, ENGINES[name], seed, LONG, 0.0)["cost_s"]
            for seed in LONG_SEEDS
        ]
        for name in NAMES
    }
    runs = {
        name: {
            budget: [
                run_seed(problem, ENGINES[name], seed, budget, 0.0)
                for seed in range(num_seeds)
            ]
            for budget in BUDGETS
        }
        for name in NAMES
    }
    costs = [run["cost_s"] for own in runs.values() for b in own.values() for run in b]
    best = min(*costs, *(cost for own in long.values() for cost in own))
    figures: dict[str, Any] = {"best_s": best, "long": long}
    for name, own in runs.items():
        near = {
            budget: sum(run["cost_s"] <= NEAR * best for run in some) / num_seeds
            for budget, some in own.items()
        }
        figures[name] = {
            "near": near,
            "all near at": min((b for b in BUDGETS if near[b] == 1), default=None),
            "ratio": {
                budget: math.exp(fmean(math.log(run["cost_s"] / best) for run in some))
                for budget, some in own.items()
            },
            "seconds": {
                budget: median(run["seconds"] for run in some)
                for budget, some in own.items()
            },
            "longest_s": max(run["seconds"] for some in own.values() for run in some),
        }
    return figures


@benchmark(option("--seeds", type=int, default=25), out=STORED)
def main(options: Options) -> None:
    """Measure, write JSON."""
    figures: dict[str, Any] = {}
    for program, chip, sizes in CASES:
        text = ",".join(f"{axis}={size}" for axis, size in sizes.items())
        problem = problem_at(program, chip, sizes)
        run_seed(problem, ENGINES["mcts, learned"], 0, 10, 0.0)  # compiles
        found = figures[f"{program} {chip} {text}"] = measure(problem, options.seeds)
        print(program, chip, text, f"best {found['best_s']:.6f} s")
        for name in NAMES:
            own = found[name]
            print(
                f"  {name:20}",
                *(
                    f"{b}: {own['near'][b]:.2f} x{own['ratio'][b]:.3f}"
                    f" {1000 * own['seconds'][b]:.0f} ms "
                    for b in BUDGETS
                ),
                flush=True,
            )
        options.save(figures)


if __name__ == "__main__":
    main()

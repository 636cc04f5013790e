"""How sparse valid partitions are, and how often the constraint solver gives up.

    python -m benchmarks chips chip_graphs FOLDER
    python -m benchmarks chips chip_constraints FOLDER --out FILE.json

For each held-out graph on 4, 8 and 36 chips: valid assignments among 1,000 uniformly
random ones, valid ones among repairs of the first 100 of them, and how many of these
repairs, and of as many samples with equal weights, had to merge chips.
"""

from pathlib import Path

import numpy as np

from benchmarks.chips.chip_graphs import load_folder
from benchmarks.harness import REQUIRED, Options, benchmark, option
from benchmarks.train.train_chip_policy import problems_of
from meshwright.features.chips.constraints.checker import violations
from meshwright.features.chips.problem.chip_problem import ChipProblem
from meshwright.search.arrays import Ints

RANDOM, REPAIRED = 1000, 100
"""Assignments of each graph and module."""


def counts(problem: ChipProblem, seed: int) -> dict[str, int]:
    """What is counted for one graph on one module."""
    num_ops, chips = problem.graph.num_ops, problem.module.num_chips
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, chips, (RANDOM, num_ops))

    def valid(partitions: list[Ints]) -> int:
        return sum(not any(violations(problem.graph, p, chips)) for p in partitions)

    solver = problem.solver
    repaired = [problem.repaired(each) for each in drawn[:REPAIRED]]
    merged_repairs = solver.merged
    even = np.ones((num_ops, chips))
    sampled = [solver.sample(even, rng) for _ in range(REPAIRED)]
    return {
        "ops": num_ops,
        "random": RANDOM,
        "valid random": valid(list(drawn)),
        "repaired": REPAIRED,
        "valid repaired": valid(repaired),
        "repairs that merged": merged_repairs,
        "valid sampled": valid(sampled),
        "samples that merged": solver.merged - merged_repairs,
    }


@benchmark(option("folder", type=Path), out=REQUIRED, seed=0)
def main(chosen: Options) -> None:
    """Count, write the file, and print a line for each graph and module."""
    rows: dict[str, dict[str, int]] = {}
    for name, problem in problems_of(load_folder(chosen.folder / "held_out")).items():
        rows[name] = counts(problem, chosen.seed)
        print(f"{name:28}", *rows[name].values(), flush=True)
        chosen.save({"seed": chosen.seed, "rows": rows})


if __name__ == "__main__":
    main()

"""Hypervolume regret of engines on the table of digits models, beside random and optuna."""

from __future__ import annotations

import numpy as np

from benchmarks.codesign.macro_space import SPACE
from benchmarks.codesign.macro_table import MACHINES, TableLookup
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.search.trials import ENGINES, Study, find_engine, run_trials

COUNTS = (25, 50, 100)


@benchmark(
    option("--seeds", type=int, default=20, help="searches of each engine"),
    option("--machines", default=",".join(MACHINES), help="names, with commas"),
    option("--engines", default="", help="names, with commas; default: all"),
    out=STORED,
)
def main(options: Options) -> None:
    """Print the mean regret after each number of evaluations, by machine and engine."""
    names = [name for name in options.engines.split(",") if name] or list(ENGINES)
    for machine in options.machines.split(","):
        lookup = TableLookup(machine)
        best = lookup.whole_front().hypervolume(lookup.reference)
        for name in names:
            regrets = [
                _regrets(name, lookup, seed, best) for seed in range(options.seeds)
            ]
            mean = np.mean(regrets, axis=0)
            figures = {
                f"after_{n}": float(m) for n, m in zip(COUNTS, mean, strict=True)
            }
            options.save_case(machine, name, figures)


def _regrets(name: str, lookup: TableLookup, seed: int, best: float) -> list[float]:
    """1 - hypervolume / the best one, after each number of evaluations."""
    study = Study(SPACE, lookup.goals, find_engine(name), seed)
    front = run_trials(study, lookup, trials=COUNTS[-1])
    return [1 - v / best for v in front.hypervolumes(lookup.reference, COUNTS)]


if __name__ == "__main__":
    main()

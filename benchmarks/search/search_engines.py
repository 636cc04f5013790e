"""Evaluations until the best state of a toy problem is found, for each engine.

Each problem is small enough to be enumerated, so the best cost is known. An engine runs
once per seed. The table shows the median over the seeds, and how many of them found the
best state. Trajectories per second are those of the engine and the toy together.

    python -m benchmarks search search_engines [--seeds 7] [--evaluations 1000]
"""

from __future__ import annotations

import math
import statistics
from functools import cache
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.search import (
    Annealing,
    Beam,
    Budget,
    Evolution,
    Exhaustive,
    Mcts,
    Sampling,
    search,
)
from tests.search.toys import Grid, Order, Subset, Trap, lowest_cost

CONSOLE = Console()
LANDSCAPES = {
    "subset of 14": Subset(14, seed=1),
    "order of 7": Order(7, seed=3),
    "4 traps": Trap(4),
    "grid of 6": Grid(6, seed=1),
}
ENGINES = {
    "exhaustive": lambda seed: Exhaustive(),
    "sampling": lambda seed: Sampling(seed),
    "beam": lambda seed: Beam(),
    "annealing": lambda seed: Annealing(seed),
    "evolution": lambda seed: Evolution(seed),
    "mcts": lambda seed: Mcts(seed),
    "mcts, no merits": lambda seed: Mcts(seed, num_draws=1),
    "uct": lambda seed: Mcts(
        seed, exploration=math.sqrt(2), widening=1, greed=0, num_draws=1
    ),
}


@cache
def lowest_cost_of(landscape: str) -> float:
    """The lowest cost of a problem, found by enumeration."""
    return lowest_cost(LANDSCAPES[landscape])


def measure(landscape: str, engine: str, options: Options) -> dict[str, Any]:
    """One cell: evaluations to the best, one per seed that found it."""
    problem, found, trials, seconds = LANDSCAPES[landscape], [], 0, 0.0
    lowest = lowest_cost_of(landscape)
    seeds = options.seeds if hasattr(ENGINES[engine](0), "seed") else 1
    for seed in range(seeds):
        budget = Budget(evaluations=options.evaluations)
        result = search(problem, ENGINES[engine](seed), budget)
        trials, seconds = trials + result.trials, seconds + result.seconds
        if result.cost <= lowest:
            found.append(result.improvements[-1].evaluation)
    return {
        "landscape": landscape,
        "engine": engine,
        "evaluations": found,
        "seeds": seeds,
        "trials_per_s": round(trials / seconds),
    }


def show(row: dict[str, Any]) -> str:
    """The median over all seeds, those that never found it counting as worst."""
    found, seeds = row["evaluations"], row["seeds"]
    median = statistics.median_low(found + [math.inf] * (seeds - len(found)))
    return f"{'-' if median == math.inf else median} ({len(found)}/{seeds})"


@benchmark(
    option("--seeds", type=int, default=7),
    option("--evaluations", type=int, default=1000),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure, print a table, write JSON."""
    rows = []
    table = Table("", *LANDSCAPES, "trials/s", title="evaluations to the best")
    for engine in ENGINES:
        with CONSOLE.status(engine):
            cells = [measure(landscape, engine, options) for landscape in LANDSCAPES]
        rows += cells
        speed = statistics.median(cell["trials_per_s"] for cell in cells)
        table.add_row(engine, *map(show, cells), f"{speed:.0f}")
    CONSOLE.print(table)
    limit = {"evaluations": options.evaluations}
    options.save({**limit, "rows": rows})


if __name__ == "__main__":
    main()

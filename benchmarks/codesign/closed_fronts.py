"""Hypervolume on ZDT1-3 and DTLZ2 after 2,000 evaluations, beside pymoo's NSGA-II."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.errors import SearchError, import_extra
from meshwright.search.trials import (
    Goals,
    Nsga2,
    Range,
    Space,
    Study,
    TrialEngine,
    hypervolume,
    run_trials,
)

OURS: dict[str, Callable[[], TrialEngine]] = {
    "nsga2": Nsga2,
    "nsga2 of 100": lambda: Nsga2(100, 100),
}
POPULATIONS = (40, 100)
"""Populations of pymoo's NSGA-II; 100 is its default."""


def zdt(number: int, x: Any) -> list[float]:
    """Problems of Zitzler, Deb and Thiele (2000): 30 variables, two costs."""
    g = 1 + 9 * x[1:].mean()
    share = x[0] / g
    if number == 1:
        h = 1 - math.sqrt(share)
    elif number == 2:
        h = 1 - share**2
    else:
        h = 1 - math.sqrt(share) - share * math.sin(10 * math.pi * x[0])
    return [float(x[0]), float(g * h)]


def dtlz2(x: Any) -> list[float]:
    """Problem of Deb et al. (2002): 12 variables, three costs, an octant of a sphere."""
    g = 1 + ((x[2:] - 0.5) ** 2).sum()
    a, b = x[0] * math.pi / 2, x[1] * math.pi / 2
    return [
        float(g * math.cos(a) * math.cos(b)),
        float(g * math.cos(a) * math.sin(b)),
        float(g * math.sin(a)),
    ]


PROBLEMS: dict[str, tuple[Callable[[Any], list[float]], int, int, float]] = {
    "zdt1": (lambda x: zdt(1, x), 30, 2, 11.0),
    "zdt2": (lambda x: zdt(2, x), 30, 2, 11.0),
    "zdt3": (lambda x: zdt(3, x), 30, 2, 11.0),
    "dtlz2": (dtlz2, 12, 3, 2.5),
}
"""A function, its variables and costs, and the reference of every cost."""


@benchmark(
    option("--evaluations", type=int, default=2000),
    option("--seeds", type=int, default=5),
    out=STORED,
)
def main(options: Options) -> None:
    """Print the mean hypervolume over seeds of each engine on each problem."""
    for name, (fn, size, num_costs, end) in PROBLEMS.items():
        reference = np.full(num_costs, end)
        found: dict[str, list[float]] = {}
        for seed in range(options.seeds):
            for engine, make in OURS.items():
                costs = _ours(make(), fn, size, num_costs, seed, options.evaluations)
                found.setdefault(engine, []).append(hypervolume(costs, reference))
            for population in POPULATIONS:
                costs = _pymoo(
                    fn, size, num_costs, population, seed, options.evaluations
                )
                volume = hypervolume(costs, reference)
                found.setdefault(f"pymoo nsga2 of {population}", []).append(volume)
        means = {engine: float(np.mean(each)) for engine, each in found.items()}
        options.save_case("hypervolume", name, means)


def _ours(
    engine: TrialEngine, fn: Any, size: int, num_costs: int, seed: int, evaluations: int
) -> list[list[float]]:
    names = [f"f{i}" for i in range(num_costs)]
    space = Space({f"x{i}": Range(0.0, 1.0) for i in range(size)})
    study = Study(space, Goals(dict.fromkeys(names, "min"), {}), engine, seed)

    def evaluate(candidate: dict[str, float]) -> dict[str, float]:
        return dict(zip(names, fn(np.array(list(candidate.values()))), strict=True))

    front = run_trials(study, evaluate, trials=evaluations)
    return [list(point.costs) for point in front.points]


def _pymoo(
    fn: Any, size: int, num_costs: int, population: int, seed: int, evaluations: int
) -> Any:
    """The costs of pymoo's final population."""

    def load(module: str) -> Any:
        return import_extra(module, "this needs pymoo", "search", SearchError)

    problem = load("pymoo.problems.functional").FunctionalProblem(
        size, [lambda x, i=i: fn(x)[i] for i in range(num_costs)], xl=0.0, xu=1.0
    )
    algorithm = load("pymoo.algorithms.moo.nsga2").NSGA2(pop_size=population)
    minimize = load("pymoo.optimize").minimize
    return minimize(problem, algorithm, ("n_eval", evaluations), seed=seed).F


if __name__ == "__main__":
    main()

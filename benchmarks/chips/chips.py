"""Methods of multi-chip partitioning side by side on held-out graphs.

    python -m benchmarks chips chip_graphs FOLDER
    python -m benchmarks chips chips FOLDER --out benchmarks/results/chips.json

Each graph on 4, 8 and 36 chips. Quality is the bound on the bottleneck over the
bottleneck: 1 is proven optimal, and a ratio of qualities is one of throughputs. Methods
that improve a partition begin at the best cut. What is in the file already is kept, so
that an interrupted run goes on.
"""

import math
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chips.chip_graphs import load_folder
from benchmarks.harness import REQUIRED, Options, benchmark, option
from benchmarks.train.train_chip_policy import problems_of
from meshwright.features.chips.constraints.checker import violations
from meshwright.features.chips.methods.contiguous import best_cut
from meshwright.features.chips.methods.exact import solve_exactly
from meshwright.features.chips.methods.moves import anneal, random_start
from meshwright.features.chips.methods.policy import fine_tune, propose
from meshwright.features.chips.policy_network import (
    new_policy,
    read_policy,
    shipped_policy,
)
from meshwright.features.chips.problem.chip_problem import ChipProblem
from meshwright.learn.ppo import Policy, PolicyTrainer
from meshwright.search import Budget
from meshwright.search.arrays import Ints

SAMPLES, EVALUATIONS = 50, 500
"""Budgets of the policy and of annealing."""


@benchmark(
    option("folder", type=Path),
    option("--policy", type=Path, help="another than the shipped one"),
    option("--most-ops", type=int, default=10_000),
    option("--exact-size", type=int, default=700),
    option("--method", action="append", help="measure only these"),
    option("--exact-s", type=float, default=60.0),
    out=REQUIRED,
    seed=0,
)
def main(chosen: Options) -> None:
    """Measure what is missing, write it, and print the table."""
    policy = read_policy(chosen.policy) if chosen.policy else shipped_policy()
    rows: dict[str, Any] = chosen.stored({"rows": {}})["rows"]
    problems = problems_of(load_folder(chosen.folder / "held_out"))
    for name, problem in sorted(problems.items(), key=lambda p: p[1].graph.num_ops):
        if problem.graph.num_ops > chosen.most_ops:
            continue
        row = rows.setdefault(name, {"ops": problem.graph.num_ops})
        for key, value in _measured(problem, policy, chosen, row):
            row[key] = value
            print(f"{name:28} {key:26} {value:.4f}", flush=True)
            chosen.save({"rows": rows, "summary": list(summary(rows))})
    for line in summary(rows):
        print(line)


def _measured(
    problem: ChipProblem, policy: Policy, chosen: Any, row: dict[str, Any]
) -> Iterator[tuple[str, float]]:
    """Names and qualities that the row lacks."""
    seed: int = chosen.seed
    cut = best_cut(problem)
    draft = problem.repaired(problem.even_weights()) if cut is None else cut
    rng = np.random.default_rng(seed)
    start = random_start(problem, rng)

    def random_repair() -> float:
        return max(
            _quality(problem, random_start(problem, rng)) for _ in range(SAMPLES)
        )

    def annealed(begin: Ints) -> float:
        return _quality(
            problem, anneal(problem, begin, seed, Budget(evaluations=EVALUATIONS))[0]
        )

    def proposed(policy: Policy) -> float:
        found = islice(propose(problem, policy, draft, seed), SAMPLES)
        return max(_quality(problem, chips) for chips in (draft, *found))

    methods = {
        "valid of 1000 random": lambda: float(_num_valid(problem, rng)),
        "random and repair 50": random_repair,
        "best cut": lambda: _quality(problem, draft),
        "policy 50": lambda: proposed(policy),
        "untrained policy 50": lambda: proposed(new_policy(0)),
        "annealing 500 from random": lambda: annealed(start),
        "annealing 500 from cut": lambda: annealed(draft),
        "fine-tuned evaluations": lambda: float(
            _evaluations_to(problem, policy, draft, row["annealing 500 from cut"], seed)
        ),
    }
    size = problem.graph.num_ops * problem.module.num_chips
    if size <= chosen.exact_size:
        methods["exact"] = lambda: _exact(problem, draft, chosen.exact_s, row)
    for name, measure in methods.items():
        if name not in row and (not chosen.method or name in chosen.method):
            yield name, measure()


def _quality(problem: ChipProblem, chips: Ints) -> float:
    assert not list(violations(problem.graph, chips, problem.module.num_chips))
    return problem.bound_s / problem.load(chips).cost


def _num_valid(problem: ChipProblem, rng: np.random.Generator) -> int:
    """Valid assignments among 1000 uniformly random ones."""
    graph, count = problem.graph, problem.module.num_chips
    drawn = (rng.integers(0, count, graph.num_ops) for _ in range(1000))
    return sum(not any(violations(graph, each, count)) for each in drawn)


def _evaluations_to(
    problem: ChipProblem, policy: Policy, draft: Ints, quality: float, seed: int
) -> int:
    """Proposals of the policy, tuned on this problem, until it is as good; at most 500."""
    if _quality(problem, draft) >= quality - 1e-12:
        return 0
    tuned = fine_tune(problem, PolicyTrainer(policy), draft, seed)
    for count, chips in enumerate(islice(tuned, EVALUATIONS), 1):
        if _quality(problem, chips) >= quality - 1e-12:
            return count
    return EVALUATIONS


def _exact(
    problem: ChipProblem, draft: Ints, seconds: float, row: dict[str, Any]
) -> float:
    """CP-SAT's quality; whether it is proven optimal is noted in the row."""
    start_s = time.perf_counter()
    answer = solve_exactly(problem, draft, seconds)
    row["exact is optimal"] = answer.is_optimal
    row["exact seconds"] = time.perf_counter() - start_s
    return _quality(problem, draft if answer.chips is None else answer.chips)


def summary(rows: dict[str, Any]) -> Iterator[str]:
    """Geometric means by number of chips, and what the issue of this benchmark asks."""
    names = [
        "random and repair 50", "annealing 500 from random", "best cut",
        "untrained policy 50", "annealing 500 from cut", "policy 50",
    ]  # fmt: skip
    compared = {
        n: r for n, r in rows.items()
        if "policy 50" in r and "annealing 500 from cut" in r
    }  # fmt: skip
    names = [name for name in names if all(name in r for r in compared.values())]
    yield "| chips | graphs | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 2) + "|"
    for module in ("mcm-4", "mcm-8", "mcm-36"):
        chosen = [r for n, r in compared.items() if n.endswith(" " + module)]
        means = [_geometric_mean([r[n] for r in chosen]) for n in names]
        cells = " | ".join(f"{mean:.4f}" for mean in means)
        yield f"| {module[4:]} | {len(chosen)} | {cells} |"
    known = [r for r in rows.values() if r.get("exact is optimal") and "policy 50" in r]
    gaps = [r["exact"] / r["policy 50"] - 1 for r in known]
    if gaps:
        yield f"optimum known for {len(gaps)}: policy 50 within {max(gaps):.2%}"
    spent = [
        r["fine-tuned evaluations"]
        for r in rows.values()
        if "fine-tuned evaluations" in r
    ]
    if spent:
        yield (
            f"fine-tuned policy as good as annealing at {EVALUATIONS} after "
            f"{np.median(spent):.0f} evaluations (median), {np.mean(spent):.0f} (mean), "
            f"{sum(s <= EVALUATIONS / 5 for s in spent)} of {len(spent)} within a fifth"
        )


def _geometric_mean(qualities: list[float]) -> float:
    if not qualities:
        return math.nan
    return math.exp(np.mean(np.log(np.maximum(qualities, 1e-9))))


if __name__ == "__main__":
    main()

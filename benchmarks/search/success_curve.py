"""Trajectories that tree search needs to match the expert plan: T24 on 8 by 4.

Figure 3a of Alabed et al., arXiv 2210.06352: the number of 25 runs in which the search
found BP+MT+ZeRO-3, by budget of trajectories. A run succeeds if its best plan fits and
costs no more than the expert plan by the same model. Final plans are then spelled as
tactics, lowered and simulated, as the expert plan is. Seconds are CPU seconds, so that
other work on the machine does not count; those of a search include its prior.

    python -m benchmarks search success_curve [--seeds 25] [--picture FILE]
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import places
from benchmarks.harness import STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import meshwright as mw
from benchmarks.train.train_prior import kinds_prior
from meshwright.machine import Mesh, load_machine
from meshwright.partitioner.decide import decide
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.candidates.expert_plans import expert_strategies
from meshwright.planner.solve.space import Space
from meshwright.planner.tree.cut_problem import CutProblem, CutState, InputCut
from meshwright.planner.tree.prior import learned_prior
from meshwright.planner.tree.tree_search import (
    goals_of,
    make_engine,
    make_problem,
    search_cuts,
)
from meshwright.predict.estimate import estimate
from meshwright.search import Budget, Engine, Mcts, Sampling, search_goals
from zoo import gpt3

PICTURE = places.ROOT / "docs" / "pictures" / "success_curve.png"
MESH = Mesh({"data": 8, "model": 4})
EXPERT = "Megatron + ZeRO-3"
BUDGETS = (10, 25, 50, 100, 250)
GOAL_TRAJECTORIES = 50
PUBLISHED = {100: 0.04, 250: 0.20, 1000: 0.68, 2500: 1.0, 4000: 1.0}
"""Share of 25 seeds with all additions (+ST+AG+MC), read off the figure."""

type Make = Callable[[CutProblem, int], Engine]
"""An engine for a problem and a seed."""

ENGINES: dict[str, Make] = {
    "mcts, learned": make_engine,
    "sampling, learned": lambda problem, seed: Sampling(
        seed, prior_fn=learned_prior(problem)
    ),
    "mcts, kinds": lambda problem, seed: Mcts(
        seed, exploration=1.0, prior_fn=kinds_prior(problem)
    ),
    "sampling, kinds": lambda problem, seed: Sampling(
        seed, prior_fn=kinds_prior(problem)
    ),
    "mcts, no prior": lambda problem, seed: Mcts(seed),
    "sampling, no prior": lambda problem, seed: Sampling(seed),
}
SHOWN = "mcts, learned"
"""The engine whose runs are recorded, and whose plans are simulated."""


@dataclass(slots=True)
class Counted:
    """The problem with no state priced yet, and a count of propagated states."""

    problem: CutProblem
    propagated: int = 0

    def __post_init__(self) -> None:
        self.problem.known_costs.clear()

    def start(self) -> CutState:
        return self.problem.start()

    def actions(self, state: CutState) -> Sequence[InputCut]:
        return self.problem.actions(state)

    def apply(self, state: CutState, action: InputCut) -> CutState:
        self.propagated += 1
        return self.problem.apply(state, action)

    def cost(self, state: CutState) -> float:
        return self.problem.cost(state)

    def key(self, state: CutState) -> object:
        return self.problem.key(state)


def run_seed(
    problem: CutProblem, make: Make, seed: int, trajectories: int, wanted: float
) -> dict[str, Any]:
    """The trajectory at which one search reached the wanted cost, and its total effort."""
    counted = Counted(problem)
    started = time.process_time()
    engine = make(problem, seed)
    goals, budget = goals_of(problem), Budget(trials=trajectories)
    results = search_goals(counted, goals, engine, budget)
    seconds = time.process_time() - started
    before, reached = 0, None
    for result in results:
        for found in result.improvements:
            if found.cost <= wanted and reached is None:
                reached = before + found.trial
        before += result.trials
    return {
        "reached": reached,
        "cost_s": results[-1].cost,
        "trajectories": before,
        "priced": sum(result.evaluations for result in results),
        "propagated": counted.propagated,
        "seconds": seconds,
    }


def speed_of(problem: CutProblem, num_walks: int = 200) -> dict[str, float]:
    """States per second on random walks: each propagated from the last, then priced.

    A walk ends when nothing more can be cut. `priced` counts distinct states; others are in
    the cache and cost nothing.
    """
    rng, counted = random.Random(0), Counted(problem)
    priced = set[object]()
    started = time.process_time()
    for _ in range(num_walks):
        state = counted.start()
        while options := counted.actions(state):
            state = counted.apply(state, rng.choice(options))
            counted.cost(state)
            priced.add(state.key)
    seconds = time.process_time() - started
    return {
        "propagated": counted.propagated,
        "priced": len(priced),
        "seconds": seconds,
        "propagated_per_s": counted.propagated / seconds,
        "priced_per_s": len(priced) / seconds,
    }


def simulated(space: Space, tactics: Sequence[Tactic]) -> dict[str, float]:
    """Simulated seconds of a step and peak bytes of a list of tactics."""
    decided = decide(space.captured, MESH, tactics, Gather.SHARED)
    found = estimate(decided, space.machine, donate_state=True)
    return {"step_s": found.step_time_s, "bytes": found.peak_memory_bytes}


def measure(num_seeds: int) -> dict[str, Any]:
    """All figures of the benchmark."""
    clock = time.process_time
    machine = load_machine("tpu-v3", None, 16)
    fn, args = gpt3.t24()
    times = [clock()]
    captured = mw.partition(fn, MESH).capture(*args)
    space = Space(captured, machine)
    times.append(clock())
    problem = make_problem(space, MESH)
    times.append(clock())
    run_seed(problem, ENGINES[SHOWN], 0, 10, 0.0)
    times.append(clock())
    expert = expert_strategies(MESH)[EXPERT]
    decided = decide(captured, MESH, expert, Gather.SHARED)
    point = problem.state_from(decided.work.state)
    wanted = problem.cost(point) * (1 + 1e-9)
    figures: dict[str, Any] = {
        "capture_s": times[1] - times[0],
        "price_s": times[2] - times[1],
        "compile_s": times[3] - times[2],
        "expert": EXPERT,
        "expert_s": problem.measure(point).seconds,
        "expert_simulated": simulated(space, expert),
        "speed": speed_of(problem),
        "curves": {},
        "seconds": {},
    }
    for name, make in ENGINES.items():
        curve, seconds = figures["curves"].setdefault(name, {}), {}
        for budget in BUDGETS:
            runs = [
                run_seed(problem, make, seed, budget, wanted)
                for seed in range(num_seeds)
            ]
            curve[budget] = sum(run["cost_s"] <= wanted for run in runs) / num_seeds
            seconds[budget] = median(run["seconds"] for run in runs)
            print(
                f"{name:20} {budget:5} {curve[budget]:.2f} {seconds[budget]:.3f} s",
                flush=True,
            )
            if (name, budget) == (SHOWN, GOAL_TRAJECTORIES):
                figures["runs"] = runs
        figures["seconds"][name] = seconds
    figures["plans"] = [plan_of(problem, space, seed) for seed in range(num_seeds)]
    return figures


def plan_of(problem: CutProblem, space: Space, seed: int) -> dict[str, Any]:
    """Seconds of a search and its spelling, and the simulated figures of its plan."""
    problem.known_costs.clear()
    started = time.process_time()
    found = search_cuts(
        problem, ENGINES[SHOWN](problem, seed), Budget(trials=GOAL_TRAJECTORIES)
    )
    seconds = time.process_time() - started
    model = {"model_s": found.cost.seconds, "num_tactics": len(found.tactics)}
    return {"seconds": seconds, **model, **simulated(space, found.tactics)}


def summary(figures: dict[str, Any]) -> dict[str, Any]:
    """Medians and extremes over all runs."""
    runs, plans = figures["runs"], figures["plans"]
    reached = [run["reached"] for run in runs if run["reached"] is not None]
    expert = figures["expert_simulated"]
    return {
        "reached": f"{len(reached)} of {len(runs)}",
        "reached at, median": median(reached),
        "reached at, last": max(reached),
        "search s, median": median(run["seconds"] for run in runs),
        "search s, longest": max(run["seconds"] for run in runs),
        "search and spelling s, longest": max(plan["seconds"] for plan in plans),
        "priced, median": median(run["priced"] for run in runs),
        "propagated, median": median(run["propagated"] for run in runs),
        "simulated as fast as the expert": sum(
            plan["step_s"] <= expert["step_s"] for plan in plans
        ),
        "simulated, slowest in parts of the expert": max(
            plan["step_s"] / expert["step_s"] for plan in plans
        ),
        "simulated, GiB at most": max(plan["bytes"] for plan in plans) / 2**30,
        "states per s": figures["speed"]["propagated_per_s"],
        "distinct states per s": figures["speed"]["priced_per_s"],
    }


def draw(figures: dict[str, Any], path: Path) -> None:
    """Draw the share of successful runs by budget, with the published curve."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.2))
    marks = {"mcts": "C0o", "sampling": "C1s"}
    lines = {"learned": "-", "kinds": "--", "no prior": ":"}
    for name, curve in figures["curves"].items():
        engine, _, prior = name.partition(", ")
        style = marks[engine] + lines[prior]
        budgets = [int(budget) for budget in curve]
        axes.plot(budgets, list(curve.values()), style, ms=4, label=name)
    axes.plot(list(PUBLISHED), list(PUBLISHED.values()), "k^-", ms=5, label="published")
    axes.axvline(GOAL_TRAJECTORIES, color="0.8", lw=1, zorder=0)
    axes.set_xscale("log")
    axes.set_xlabel("trajectories")
    axes.set_ylabel(f"seeds of {len(figures['runs'])} at the experts' cost")
    axes.set_title("T24 on 8 by 4, TPU v3", fontsize=10)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


@benchmark(
    option("--seeds", type=int, default=25),
    option("--picture", type=Path, default=PICTURE),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure, write JSON, draw."""
    figures = measure(options.seeds)
    figures = {"summary": summary(figures), **figures}
    options.save(figures)
    draw(options.stored(figures), options.picture)
    print(json.dumps(figures["summary"], indent=1))


if __name__ == "__main__":
    main()

"""Train the policy for multi-chip partitioning, and write the file that is shipped.

    python -m benchmarks chips chip_graphs FOLDER
    python -m benchmarks train train_chip_policy FOLDER --steps 1500 --out policy.npz

Each step takes one graph on 4, 8 or 36 chips and one round of proposals from a draft:
the best cut, a cut by weights, or a random partition, each improved for some rounds. An
interrupted training goes on from the file. No GPU, a few minutes of one core.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.chips.chip_graphs import load_folder
from benchmarks.harness import REQUIRED, Options, benchmark, option
from meshwright.errors import ChipsError
from meshwright.features.chips.graph.chip_graph import ChipGraph
from meshwright.features.chips.methods.contiguous import best_cut
from meshwright.features.chips.methods.moves import random_start
from meshwright.features.chips.methods.policy import play_round
from meshwright.features.chips.policy_network import new_policy, read_policy
from meshwright.features.chips.problem.chip_module import module_machine, module_of
from meshwright.features.chips.problem.chip_problem import ChipProblem
from meshwright.learn.ppo import Experience, PolicyTrainer
from meshwright.search.arrays import Ints

MODULES = ("mcm-4", "mcm-8", "mcm-36")

ROUNDS = 4
"""Rounds of proposals from one draft, before another problem is taken."""


def problems_of(graphs: dict[str, ChipGraph]) -> dict[str, ChipProblem]:
    """Each graph on each module that has the memory for it."""
    found: dict[str, ChipProblem] = {}
    for module in MODULES:
        chips = module_of(module_machine(module))
        for name, graph in graphs.items():
            try:
                found[f"{name} on {module}"] = ChipProblem(graph, chips)
            except ChipsError as error:
                print(f"left out: {name} on {module}: {error}", file=sys.stderr)
    return found


@benchmark(
    option("folder", type=Path),
    option("--steps", type=int, default=1500),
    option("--most-ops", type=int, default=600),
    out=REQUIRED,
    seed=0,
)
def main(chosen: Options) -> None:
    """Train, and print the mean reward every fifty steps."""
    graphs = {
        name: graph
        for name, graph in load_folder(chosen.folder / "training").items()
        if graph.num_ops <= chosen.most_ops
    }
    problems = list(problems_of(graphs).values())
    policy = read_policy(chosen.out) if chosen.out.exists() else new_policy(0)
    trainer = PolicyTrainer(policy)
    done = trainer.steps_done
    print(f"{len(graphs)} graphs, {len(problems)} problems, from step {done}")
    rewards: list[float] = []
    for step, each in enumerate(
        _experiences(problems, trainer, chosen.seed + done), done
    ):
        if step >= chosen.steps:
            break
        trainer.learn(each)
        rewards.append(float(each.rewards.max()))
        if step % 50 == 49:
            print(
                f"step {step + 1}  best of a round {np.mean(rewards[-50:]):.4f}",
                flush=True,
            )
            trainer.policy.save(chosen.out)
    trainer.policy.save(chosen.out)


def _experiences(
    problems: list[ChipProblem], trainer: PolicyTrainer, seed: int
) -> Iterator[Experience]:
    """Rounds of the current policy on random problems and drafts."""
    rng = np.random.default_rng(seed)
    while True:
        problem = problems[rng.integers(len(problems))]
        draft = _draft(problem, rng)
        for _ in range(ROUNDS):
            made = play_round(problem, trainer.policy, draft, rng)
            yield made.experience
            best = int(np.argmin(made.costs))
            if made.costs[best] < problem.load(draft).cost:
                draft = made.chips[best]


def _draft(problem: ChipProblem, rng: np.random.Generator) -> Ints:
    kind = rng.integers(3)
    cut = best_cut(problem) if kind == 0 else None
    if cut is not None:
        return cut
    if kind == 1:
        return problem.repaired(problem.even_weights())
    return random_start(problem, rng)


if __name__ == "__main__":
    main()

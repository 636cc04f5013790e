"""Training of tree search's learned prior, on long searches of programs of the zoo.

Each program is searched on several meshes. In states on the path to the best state, and one
cut off the path, each legal cut is tried next, followed by the rest of the path. The worth
of a cut falls with the cost of the state at the end; it is highest if the cut also makes a
cut of the rest unnecessary. Weights are fitted by L-BFGS from zeros, so that the expected
worth of a cut drawn by the prior is highest. Families of programs on which the prior is
evaluated (`benchmarks.search.learned_prior`) are left out.

    python -m benchmarks train train_prior
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from benchmarks.harness import Options, benchmark

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.optimize import minimize

import meshwright as mw
from meshwright.machine import Mesh, load_machine
from meshwright.planner.solve.space import Space
from meshwright.planner.tree.cut_problem import CutProblem, CutState, InputCut
from meshwright.planner.tree.features import FEATURES, CutFeatures, Phase, kinds_of
from meshwright.planner.tree.prior import SHIPPED, prior_of
from meshwright.planner.tree.tree_search import drop_useless, goals_of, make_problem
from meshwright.search import Budget, Mcts, Prior, Result, search_goals

PROGRAMS = {
    "primer:primer_small": "tpu-v5e",
    "primer:primer_medium": "tpu-v3",
    "t5:small": "tpu-v3",
    "t5:base": "tpu-v5e",
    "moe:moe_380m": "tpu-v3",
    "llm:gpt_350m": "tpu-v3",
    "llm:gpt_1_3b": "tpu-v4",
    "llm:llama2_7b": "tpu-v5p",
    "mixer:s_16": "tpu-v5e",
    "mixer:b_32": "tpu-v3",
    "unet:partir": "tpu-v3",
    "sngan:cifar10": "tpu-v5e",
    "d4pg:humanoid": "tpu-v3",
    "wavenet:teacher": "tpu-v3",
}
"""Programs, with the machine of each. gpt, gpt3, vit, gns, lstm, ranking and unet3d are
left out for the evaluation."""

SHAPES = ((8, 4), (4, 8), (16, 2))
SEEDS = 2
TRAJECTORIES = 500
MOST_CUTS = 40
"""Cuts tried in one state at most; of more, a random sample of each kind is tried."""

MUCH = 0.03
"""Logarithm of the ratio of costs at which the worth of a cut falls to 1 / e."""

IDLE = 0.3
"""Worth of a cut that costs nothing and makes no other cut unnecessary."""

DECAY = 1e-3
"""Coefficient of L2 regularization: the best of 3e-4 to 3e-2, in half decades, by
leave-one-family-out cross-validation."""


@dataclass(frozen=True, slots=True)
class Example:
    """A state, and the worth of each of its C cuts.

    features: [C, F]. shares: share of its kind that each cut stands for, [C]. worths: [C]
    """

    phase: Phase
    features: NDArray[np.float64]
    shares: NDArray[np.float64]
    worths: NDArray[np.float64]


def first_guess() -> NDArray[np.float64]:
    """Weights that prefer cuts which save time, then memory, by themselves.

    A search with them finds some states that a search with equal kinds does not.
    """
    weights = np.zeros((len(Phase), len(FEATURES)))
    weights[:, FEATURES.index("seconds")] = -1.5
    weights[:, FEATURES.index("bytes")] = -0.5
    return weights


def kinds_prior(problem: CutProblem) -> Prior:
    """A prior with equal weight for each kind, shared by its legal cuts."""
    kinds = kinds_of(problem)

    def weights(state: CutState, cuts: Sequence[InputCut]) -> Sequence[float]:
        num_legal = Counter(map(kinds.get, cuts))
        return [1 / num_legal[kinds.get(cut)] for cut in cuts]

    return weights


def solve(problem: CutProblem) -> tuple[Result[CutState, InputCut], ...]:
    """The results of all goals of the best of several searches."""
    priors: list[Prior] = [kinds_prior(problem), prior_of(problem, first_guess())]
    runs = [
        search_goals(
            problem,
            goals_of(problem),
            Mcts(seed, exploration=1.0, prior_fn=prior),
            Budget(trials=TRAJECTORIES),
        )
        for seed in range(SEEDS)
        for prior in priors
    ]
    return min(runs, key=lambda results: results[-1].cost)


def examples_of(problem: CutProblem, rng: random.Random) -> list[Example]:
    """Examples of one program on one mesh, from the goals along one axis after another."""
    path = _Path(problem, CutFeatures(problem), rng)
    found: list[Example] = []
    before, done = (), 0
    for axis, goal in zip(problem.sub_axes, solve(problem), strict=False):
        cuts = drop_useless(problem, [*before, *goal.actions[done:]])
        start = problem.follow(cut for cut in cuts if cut.axis != axis)
        own = [cut for cut in cuts if cut.axis == axis]
        found += [
            example
            for state, rest in path.states(start, own, axis)
            if (example := path.example(state, rest, axis)) is not None
        ]
        before, done = cuts, len(goal.actions)
    return found


@dataclass(frozen=True, slots=True)
class _Path:
    """Paths to best states, and the states on and next to them."""

    problem: CutProblem
    outlook: CutFeatures
    rng: random.Random
    tables: dict[tuple[str, bytes], NDArray[np.float64]] = field(default_factory=dict)

    def states(
        self, start: CutState, path: Sequence[InputCut], axis: str
    ) -> Iterator[tuple[CutState, Sequence[InputCut]]]:
        """States on a path or one cut off its beginning, with the rest of the path."""
        rng, last = self.rng, len(path)
        lengths = {0, min(1, last), last, *(rng.randint(0, last) for _ in range(8))}
        for length in sorted(lengths):
            yield self.follow(start, path[:length])[0], path[length:]
        for _ in range(3):
            length = rng.randint(0, min(last, 3))
            state, _ = self.follow(start, path[:length])
            options = self.cuts(state, axis)
            if options:
                yield self.problem.apply(state, rng.choice(options)), path[length:]

    def example(
        self, state: CutState, rest: Sequence[InputCut], axis: str
    ) -> Example | None:
        """The worths of cuts in a state; `None` if fewer than two cuts are legal."""
        outlook, options = self.outlook, self.cuts(state, axis)
        if len(options) < 2:
            return None
        by_kind: dict[int, list[int]] = {}
        for cut in options:
            number = outlook.number[cut]
            by_kind.setdefault(int(outlook.kinds[number]), []).append(number)
        most = max(MOST_CUTS // len(by_kind), 1)
        drawn = [
            self.rng.sample(own, most) if len(own) > most else own
            for own in by_kind.values()
        ]
        numbers = [number for own in drawn for number in own]
        worths = self._worths(state, rest, [outlook.cuts[n] for n in numbers])
        if worths is None:
            return None
        phase = outlook.phase(state, axis)
        places = np.searchsorted(outlook.rows[axis], numbers)
        key = axis, outlook.others(state, axis)
        if key not in self.tables:
            self.tables[key] = outlook.along(state, axis)
        features = self.tables[key][phase][places]
        shares = np.array([1 / len(own) for own in drawn for _ in own])
        return Example(phase, features, shares, worths)

    def _worths(
        self, state: CutState, rest: Sequence[InputCut], cuts: Sequence[InputCut]
    ) -> NDArray[np.float64] | None:
        """Worth of each cut, 0 to 1; `None` if none leads to a finite cost."""
        end, length = self.follow(state, rest)
        tried = [self.follow(self.problem.apply(state, cut), rest) for cut in cuts]
        costs = [self.problem.cost(point) for point, _ in tried]
        least = min(*costs, self.problem.cost(end))
        if not math.isfinite(least):
            return None
        distances = np.minimum(np.log(np.array(costs) / least) / MUCH, 50)
        spares = np.array([left < length for _, left in tried])
        return np.exp(-distances) * np.where(spares, 1, IDLE)

    def cuts(self, state: CutState, axis: str) -> list[InputCut]:
        """The cuts along an axis that are legal now and at the start."""
        options = self.problem.actions(state)
        return [c for c in options if c.axis == axis and c in self.outlook.number]

    def follow(self, state: CutState, cuts: Sequence[InputCut]) -> tuple[CutState, int]:
        """The state after some cuts, and the number of them that changed the state."""
        count = 0
        for cut in cuts:
            after = self.problem.apply(state, cut)
            count += after.key != state.key
            state = after
        return state, count


def fit(groups: Sequence[Sequence[Example]]) -> tuple[NDArray[np.float64], float]:
    """Weights, [3, F], and the loss: minus the mean logarithm of the expected worth.

    Each group of examples, a program on a mesh, has the same share in the mean.
    """
    shape = len(Phase), len(FEATURES)
    share = 1 / len(groups)
    examples = [(e, share / len(group)) for group in groups for e in group]

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = flat.reshape(shape)
        slopes = 2 * DECAY * weights
        total = DECAY * float((weights**2).sum())
        for example, part in examples:
            sums = example.features @ weights[example.phase] + np.log(example.shares)
            drawn = np.exp(sums - sums.max())
            drawn /= drawn.sum()
            worth = drawn * (example.worths + 1e-3)  # so that a logarithm exists
            mean = float(worth.sum())
            total -= part * math.log(mean)
            slopes[example.phase] -= part * (
                example.features.T @ (worth / mean - drawn)
            )
        return total, slopes.ravel()

    found = minimize(
        loss,
        np.zeros(shape).ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500},
    )
    weights = found.x.reshape(shape)
    return weights, float(found.fun - DECAY * (found.x**2).sum())


def gather() -> dict[str, list[Example]]:
    """Examples of all programs, by names of program, machine and mesh."""
    found: dict[str, list[Example]] = {}
    for program, chip in PROGRAMS.items():
        started = time.process_time()
        module, name = program.split(":")
        targets = import_module(f"zoo.{module}")
        fn, args = (getattr(targets, name, None) or targets.targets[name])()
        captured = mw.partition(fn, Mesh({"data": 32})).capture(*args)
        space = Space(captured, load_machine(chip, 32))
        for shape in SHAPES:
            problem = make_problem(space, Mesh({"data": shape[0], "model": shape[1]}))
            examples = examples_of(problem, random.Random(0))
            if examples:
                found[f"{program} {chip} {shape[0]}x{shape[1]}"] = examples
        seconds = time.process_time() - started
        print(f"{program:26} {chip:8} {seconds:6.1f} s", flush=True)
    return found


def to_json(examples: dict[str, list[Example]]) -> dict[str, Any]:
    """The contents of prior.json: weights by phase and feature, and their provenance."""
    groups = list(examples.values())
    weights, after = fit(groups)
    return {
        "weights": {
            phase.name.lower(): {
                name: round(float(weight), 4)
                for name, weight in zip(FEATURES, weights[phase], strict=True)
            }
            for phase in Phase
        },
        "trained": {
            "by": "benchmarks/train/train_prior.py",
            "programs": PROGRAMS,
            "meshes": [f"{a}x{b}" for a, b in SHAPES],
            "examples": sum(map(len, groups)),
            "loss": round(after, 4),
            "loss of kinds alone": round(loss_of_kinds(groups), 4),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
    }


def loss_of_kinds(groups: Sequence[Sequence[Example]]) -> float:
    """The loss that `fit` minimizes, for a prior in which all kinds have equal weight."""
    return -float(
        np.mean(
            [
                np.mean(
                    [
                        math.log((e.shares / e.shares.sum() * (e.worths + 1e-3)).sum())
                        for e in group
                    ]
                )
                for group in groups
            ]
        )
    )


@benchmark(out=SHIPPED)
def main(options: Options) -> None:
    """Gather, fit, write."""
    prior = to_json(gather())
    options.save(prior)
    print(json.dumps(prior["trained"], indent=1))


if __name__ == "__main__":
    main()

"""A model and an edge accelerator searched together, and each alone, at equal trials.

Accuracies are those of the table of digits models, energies those of the simulator. The
chip alone is searched for the most accurate model. One after the other, half of the trials
search for a model on the known chip, and the rest for a chip for the most economical one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks.codesign.macro_space import SPACE, apply, init
from benchmarks.codesign.macro_table import TableLookup
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.codesign import joint, nas
from meshwright.search.trials import Candidate, Trial

BATCH = 128
LOSSES = (0.01, 0.02, 0.04)
"""Accuracy given up against the most accurate model of the table."""


def space() -> nas.Space:
    """The digits models."""
    return SPACE


class Digits(TableLookup):
    """Accuracy from the table, and a model's function for the simulator."""

    def target(self, candidate: Candidate) -> tuple[Any, tuple[Any, ...]]:
        """The forward pass of a model on a batch, and its arguments."""
        kinds = list(candidate.values())
        params = jax.eval_shape(partial(init, kinds=kinds), jax.random.key(0))
        images = jax.ShapeDtypeStruct((BATCH, 8, 8, 1), np.float32)
        return partial(apply, kinds=kinds), (params, images)


evaluate = Digits()


@benchmark(
    option("--seeds", type=int, default=3, help="searches of each kind"),
    option("--trials", type=int, default=500, help="trials of each search"),
    out=STORED,
)
def main(options: Options) -> None:
    """Print the least energy at an accuracy, by kind of search, over the joint one's."""
    found: dict[tuple[float, str], list[float]] = {}
    for seed in range(options.seeds):
        for loss, kind, joules in searched(options.trials, seed):
            found.setdefault((loss, kind), []).append(joules)
    for (loss, kind), joules in found.items():
        pairs = zip(joules, found[loss, "together"], strict=True)
        figures = {
            "median_j": statistics.median(joules),
            "over_together": statistics.median(j / t for j, t in pairs),
        }
        options.save_case(f"accuracy_loss_{loss:g}", kind, figures)


def searched(trials: int, seed: int) -> Iterator[tuple[float, str, float]]:
    """The least energy at each accuracy that each kind of search finds."""
    known = joint.TEMPLATES["edge"].baseline
    best = max(SPACE.values(), key=lambda c: evaluate(c)["accuracy"])
    search = partial(joint.search, __file__, seed=seed)
    fronts = {
        "model_alone": search(chip=known, trials=trials),
        "chip_alone": search(model=best, trials=trials),
        "together": search(trials=trials),
    }
    half = search(chip=known, trials=trials // 2)
    for loss in LOSSES:
        least = evaluate(best)["accuracy"] - loss
        for kind, front in fronts.items():
            yield loss, kind, energy(front, least)
        first = accurate(half, least)
        model = min(first, key=_joules).candidate["model"] if first else best
        then = search(model=model, trials=trials - trials // 2)
        yield loss, "one_after_the_other", energy(then, least)


def accurate(front: nas.ModelFront, least: float) -> list[Trial]:
    """The points of a front that are accurate enough."""
    return [point for point in front.points if point.values["accuracy"] >= least]


def energy(front: nas.ModelFront, least: float) -> float:
    """The least energy at an accuracy; infinite if no point has it."""
    return min(map(_joules, accurate(front, least)), default=math.inf)


def _joules(point: Trial) -> float:
    return point.values["energy_j"]


if __name__ == "__main__":
    main()

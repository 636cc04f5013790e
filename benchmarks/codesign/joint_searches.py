"""A model and an edge accelerator searched together, and each alone, at equal trials.

Accuracies are those of the table of digits models, energies those of the simulator. All
searches know the most accurate model of the table and the known chip, and ask for the least
energy at an accuracy. The chip alone is searched for that model. One after the other, half
of the trials search for a model on the known chip, and the rest for a chip for it.

    python -m benchmarks codesign joint_searches [--seeds 3] [--picture FILE]
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.codesign.macro_space import SPACE, apply, init
from benchmarks.codesign.macro_table import TableLookup
from benchmarks.harness import STORED, Options, benchmark, option
from benchmarks.places import ROOT
from meshwright.codesign import joint, nas
from meshwright.search.trials import Candidate, Trial

PICTURE = ROOT / "docs" / "pictures" / "joint_fronts.png"
BATCH = 128
LOSSES = (0.01, 0.02, 0.04, 0.06, 0.08)
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
    option("--picture", type=Path, default=PICTURE),
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
    draw({key: statistics.median(joules) for key, joules in found.items()}, options)


def draw(joules: dict[tuple[float, str], float], options: Options) -> None:
    """Draw the front of each kind of search: accuracy given up, and the least energy."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.2))
    for kind in dict.fromkeys(kind for _, kind in joules):
        front = [joules[loss, kind] * 1e6 / BATCH for loss in LOSSES]
        points = [100 * loss for loss in LOSSES]
        width = 3 if kind == "together" else 1.5
        axes.plot(points, front, "o-", label=kind.replace("_", " "), linewidth=width)
    axes.set_xlabel("points of accuracy given up")
    axes.set_ylabel("least energy of an image, uJ")
    axes.set_yscale("log")
    axes.set_title(
        f"729 models x edge chips, {options.trials} trials each", fontsize=10
    )
    axes.legend()
    figure.savefig(options.picture, dpi=130, bbox_inches="tight")
    plt.close(figure)


def searched(trials: int, seed: int) -> Iterator[tuple[float, str, float]]:
    """The least energy at each accuracy that each kind of search finds."""
    known = joint.TEMPLATES["edge"].baseline
    best = max(SPACE.values(), key=lambda c: evaluate(c)["accuracy"])
    search = partial(joint.search, __file__, engine="memetic", seed=seed)
    chip_alone = search(model=best, trials=trials)
    for loss in LOSSES:
        least = evaluate(best)["accuracy"] - loss
        ask = partial(search, first=[best], least_accuracy=least)
        yield loss, "chip_alone", energy(chip_alone)
        yield loss, "model_alone", energy(ask(chip=known, trials=trials))
        yield loss, "together", energy(ask(trials=trials))
        model = _cheapest(ask(chip=known, trials=trials // 2)).candidate["model"]
        then = search(model=model, trials=trials - trials // 2)
        yield loss, "one_after_the_other", energy(then)


def energy(front: nas.ModelFront) -> float:
    """The least energy of a search."""
    return _joules(_cheapest(front))


def _cheapest(front: nas.ModelFront) -> Trial:
    return min(front.points, key=_joules)


def _joules(point: Trial) -> float:
    return point.values["energy_j"]


if __name__ == "__main__":
    main()

"""Weight sharing on the table of digits models: how well one supernet ranks all 729.

    python -m benchmarks codesign shared_weights [--steps 2000] [--seeds 3]

A supernet of `macro_space` is trained from each seed. Kendall's tau of its accuracies with
those of models trained on their own is stored, beside the tau of shorter trainings,
parameters and multiply-adds, and of one training with the mean of two others, which is
what the table's noise leaves. So is the hypervolume regret of the models that shared
weights, or parameters, rank first, after as many of their own trainings as searches have in
`table_regret`.
"""

from __future__ import annotations

import csv
from typing import Any

import numpy as np

from benchmarks.codesign import macro_space
from benchmarks.codesign.digits import TRAINED, digits
from benchmarks.codesign.macro_table import STEPS, TABLE, TableLookup
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.codesign import nas
from meshwright.learn.ranking import kendall_tau
from meshwright.search.trials import Front, Request, Trial, TrialOutcome, merit_order

COUNTS = (25, 50, 100)


def init(key: Any, inputs: Any) -> Any:
    """Parameters of every kind in every block."""
    del inputs
    return macro_space.init(key)


def apply(params: Any, images: Any, code: Any) -> Any:
    """Logits, with the kinds of the blocks as numbers."""
    return macro_space.apply(params, images, list(code.astype(int)))


def data() -> tuple[Any, Any, Any, Any]:
    """The images and labels of the table's trainings."""
    images, labels = map(np.asarray, digits())
    return images[:TRAINED], labels[:TRAINED], images[TRAINED:], labels[TRAINED:]


def single_trainings() -> np.ndarray:
    """Accuracies [models, seeds] of the table, in the order of the space."""
    found: dict[str, list[float]] = {}
    with TABLE.open(newline="") as file:
        for row in csv.DictReader(file):
            accuracy = float(row[f"accuracy_{STEPS[-1]}"])
            found.setdefault(row["model"], []).append(accuracy)
    return np.array([found[name] for name in map(_digits, macro_space.SPACE.values())])


def _digits(candidate: dict[str, Any]) -> str:
    return "".join(str(macro_space.KINDS.index(k)) for k in candidate.values())


def regrets(lookup: TableLookup, promise: np.ndarray) -> dict[str, float]:
    """Regret after training the models first in promise and latency, by front and front."""
    candidates = list(macro_space.SPACE.values())
    times = np.array([lookup(each)["latency_s"] for each in candidates])
    order = merit_order(np.stack([-promise, times], 1), np.zeros(len(times)))
    trials = tuple(
        Trial.of(
            Request(i, candidates[at]),
            TrialOutcome(lookup(candidates[at])),
            lookup.goals,
        )
        for i, at in enumerate(order[: COUNTS[-1]])
    )
    best = lookup.whole_front().hypervolume(lookup.reference)
    front = Front(lookup.goals, trials, "trials")
    volumes = front.hypervolumes(lookup.reference, COUNTS)
    return {
        f"regret_after_{n}": 1 - v / best for n, v in zip(COUNTS, volumes, strict=True)
    }


@benchmark(
    option("--steps", type=int, default=2000),
    option("--seeds", type=int, default=3),
    option("--machine", default="tpu-v5e"),
    out=STORED,
)
def main(options: Options) -> None:
    """Print the rank correlation and regret of each proxy, and store them."""
    lookup, candidates = TableLookup(options.machine), list(macro_space.SPACE.values())
    rows = [lookup(candidate) for candidate in candidates]
    accuracy = np.array([row["accuracy"] for row in rows])

    def store(name: str, promise: np.ndarray) -> None:
        figures = {"tau": kendall_tau(promise, accuracy), **regrets(lookup, promise)}
        options.save_case(options.machine, name, figures)

    for name in ("parameters", "macs"):
        store(name, np.array([row[name] for row in rows]))
    for step in STEPS[:-1]:
        short = [lookup(c, int(step) / int(STEPS[-1])) for c in candidates]
        store(f"{step}_steps", np.array([each["accuracy"] for each in short]))
    single = single_trainings()
    one, others = single[:, 0], single[:, 1:].mean(axis=1)
    options.save_case(options.machine, "noise", {"tau": kendall_tau(one, others)})
    for seed in range(options.seeds):
        name = f"shared_{options.steps}_{seed}"
        if name not in options.stored({})[options.machine]:
            store(name, shared(seed, options.steps, candidates))


def shared(seed: int, steps: int, candidates: list[dict[str, Any]]) -> np.ndarray:
    """Accuracies of the candidates with the weights of one supernet."""
    net = nas.Supernet(macro_space.SPACE, init, apply, data, steps, seed=seed)
    return np.array([net(candidate)["shared_accuracy"] for candidate in candidates])


if __name__ == "__main__":
    main()

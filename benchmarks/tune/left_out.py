"""Rankings of graphs that a method was not trained on, and the file that keeps figures."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshwright.predict.learned import Ranking

SEEDS, FOLDS = 3, 4


def left_out(method, graphs, seed):
    """The mean `Ranking` over graphs, each ranked without having been trained on.

    method: a function of training graphs and a seed that returns scores of another graph.
    """
    fold = np.random.default_rng(seed).permutation(len(graphs)) % FOLDS
    rankings = []
    for number in range(FOLDS):
        scores = method(
            [g for g, f in zip(graphs, fold, strict=True) if f != number], seed
        )
        tested = [g for g, f in zip(graphs, fold, strict=True) if f == number]
        rankings += [Ranking.of(scores(g), g.targets) for g in tested]
    return Ranking.mean(rankings)


@dataclass(frozen=True, slots=True)
class Results:
    """A JSON file of figures by part and case, written after each case."""

    path: Path

    def known(self, part):
        return self._read().get(part, {})

    def note(self, part, key, figures):
        """Keep and print the figures of one case."""
        everything = self._read()
        everything.setdefault(part, {})[key] = figures
        self.path.write_text(json.dumps(everything, indent=1) + "\n")
        shown = {k: v for k, v in figures.items() if isinstance(v, float | int)}
        print(part, key, {k: round(v, 4) for k, v in shown.items()}, flush=True)

    def _read(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {}

"""Rankings of graphs that a method was not trained on."""

import numpy as np

from meshwright.learn.ranking import Ranking

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

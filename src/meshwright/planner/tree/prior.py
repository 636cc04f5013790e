"""A learned prior for tree search: a log-linear model of which inputs to shard first.

An action ("cut") shards an input on a dim. In a transformer a third of all cuts end up
sharding the attention heads, since a cut of any attention weight, or of its moments,
propagates there; only one cut shards the batch. If all cuts had equal weight, the batch
would hardly ever be sharded first. So each kind of cuts has a weight, which its legal
cuts share: the exponential of a weighted sum of features. It is above 0 for every cut,
so that no state is ruled out. The model has one row of weights for each phase of an
axis (`Phase`); `benchmarks.train.train_prior` fits them to the best states of others.
(Automap ranks inputs by a graph network: Schaarschmidt et al., arXiv 2112.02958.)
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from meshwright.errors import SearchError
from meshwright.planner.tree.cut_problem import CutProblem, CutState, InputCut
from meshwright.planner.tree.features import FEATURES, CutFeatures, Phase
from meshwright.search import Prior
from meshwright.search.arrays import Floats

SHIPPED = Path(__file__).with_suffix(".json")
"""File with the weights that `benchmarks.train.train_prior` wrote."""

HIGHEST = 10.0
"""Largest absolute value of an exponent of the model.

A cut of weight exp(-10) is hardly ever drawn.
"""


def learned_prior(problem: CutProblem) -> Prior:
    """The prior of the search, with the weights that come with the package.

    In a state without a finite cost all features are 0, so that all kinds of cuts have
    equal weight.
    """
    return prior_of(problem, load_weights(SHIPPED))


def load_weights(path: Path) -> Floats:
    """The model's weights in a file, by phase of an axis and feature, [3, F]."""
    rows: Mapping[str, Mapping[str, float]] = json.loads(path.read_text())["weights"]
    for phase in Phase:
        row = rows.get(phase.name.lower(), {})
        if set(row) != set(FEATURES):
            odd = sorted(set(row) ^ set(FEATURES))
            raise SearchError(
                f"{path}: weights of phase {phase.name.lower()} do not match the features;"
                f" missing or unknown: {', '.join(odd)}; run benchmarks.train.train_prior"
            )
    return np.array([[rows[p.name.lower()][f] for f in FEATURES] for p in Phase])


def prior_of(problem: CutProblem, weights: Floats) -> Prior:
    """The prior of the search with these model weights, [3, F].

    In a search along one axis, features are computed in a state with its shardings
    along other axes; in a search along several axes, in the start.
    """
    features = CutFeatures(problem)
    kinds = np.append(features.kinds, features.kinds.max(initial=0) + 1)
    known: dict[tuple[str, bytes], Floats] = {}

    def table(state: CutState, axis: str) -> Floats:
        key = axis, features.others(state, axis)
        if key not in known:
            sums = np.einsum("pcf,pf->pc", features.along(state, axis), weights)
            known[key] = np.exp(np.clip(sums, -HIGHEST, HIGHEST))
        return known[key]

    def prior(state: CutState, cuts: Sequence[InputCut]) -> Sequence[float]:
        # Cuts that are not legal at the start have no number and share the last kind.
        numbers = np.array([features.number.get(cut, -1) for cut in cuts], np.int64)
        raw = np.full(len(kinds), np.exp(-HIGHEST))
        axes = dict.fromkeys(cut.axis for cut in cuts)
        for axis in axes:
            base = state if len(axes) == 1 else problem.start()
            raw[features.rows[axis]] = table(base, axis)[features.phase(state, axis)]
        num_legal = np.bincount(kinds[numbers], minlength=len(kinds))
        return (raw[numbers] / num_legal[kinds[numbers]]).tolist()

    return prior

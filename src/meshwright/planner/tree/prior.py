"""A learned prior for tree search: which cuts to try first.

For each phase of an axis it is a row of numbers, one for each feature of a cut, fitted
by `benchmarks.train_prior` to what led to the best states of other programs. (Automap
ranks inputs by a graph network: Schaarschmidt et al., arXiv 2112.02958.) A weight is the
exponential of the sum, shared by the open cuts of a kind; so it is above 0 for every cut,
and no state is ruled out.
"""

from __future__ import annotations

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
"""What `benchmarks.train_prior` wrote."""

HIGHEST = 10.0
"""Of a sum, up or down: beyond, a cut would be drawn as good as never."""


def learned_prior(problem: CutProblem) -> Prior:
    """Cuts by the weights that are shipped.

    Where a state has no price there are no features, and kinds count alike.
    """
    return prior_of(problem, load_weights(SHIPPED))


def load_weights(path: Path) -> Floats:
    """Weights by phase and feature, [3, F]."""
    told: Mapping[str, Mapping[str, float]] = json.loads(path.read_text())["weights"]
    for phase in Phase:
        row = told.get(phase.name.lower(), {})
        if set(row) != set(FEATURES):
            odd = sorted(set(row) ^ set(FEATURES))
            raise SearchError(
                f"{path}: weights of phase {phase.name.lower()} do not fit the features;"
                f" amiss are {', '.join(odd)}; run benchmarks.train_prior again"
            )
    return np.array([[told[p.name.lower()][f] for f in FEATURES] for p in Phase])


def prior_of(problem: CutProblem, weights: Floats) -> Prior:
    """Cuts by such weights, [3, F].

    A search along one axis asks what its cuts do on top of those of the axes before; one
    along several, what they do alone.
    """
    outlook = CutFeatures(problem)
    kinds = np.append(outlook.kinds, outlook.kinds.max(initial=0) + 1)
    known: dict[tuple[str, bytes], Floats] = {}

    def table(state: CutState, axis: str) -> Floats:
        key = axis, outlook.others(state, axis)
        if key not in known:
            features = outlook.features(state, axis)
            sums = np.einsum("pcf,pf->pc", features, weights)
            known[key] = np.exp(np.clip(sums, -HIGHEST, HIGHEST))
        return known[key]

    def prior(state: CutState, cuts: Sequence[InputCut]) -> Sequence[float]:
        # Cuts that were not open at the start have no number; they stand last.
        numbers = np.array([outlook.number.get(cut, -1) for cut in cuts], np.int64)
        raw = np.full(len(kinds), np.exp(-HIGHEST))
        axes = dict.fromkeys(cut.axis for cut in cuts)
        for axis in axes:
            asked = state if len(axes) == 1 else problem.start()
            raw[outlook.rows[axis]] = table(asked, axis)[outlook.phase(state, axis)]
        num_open = np.bincount(kinds[numbers], minlength=len(kinds))
        return (raw[numbers] / num_open[kinds[numbers]]).tolist()

    return prior

"""Kinds of cuts, and a prior for tree search: cuts that come to the same count as one.

In a transformer a third of all cuts of inputs cut its heads, since that is what a cut of
any weight of attention, or of its moments, leads to; one cuts the batch. Drawn evenly, a
batch is hardly ever cut first (what must be sharded alike: TOAST, arXiv 2508.15010).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from meshwright.planner.tree.cut_problem import CutProblem, CutState, InputCut
from meshwright.search import Prior


def kinds_of(problem: CutProblem) -> Mapping[InputCut, int]:
    """The number of its kind for each cut that is open at the start.

    Two cuts are of one kind if they lead to the same state when made first.
    """
    start = problem.start()
    numbers: dict[bytes, int] = {}
    return {
        cut: numbers.setdefault(problem.apply(start, cut).key, len(numbers))
        for cut in problem.actions(start)
    }


def kinds_prior(problem: CutProblem) -> Prior:
    """Equal weight for each kind of cut, shared by those of it that are open."""
    kinds = kinds_of(problem)

    def weights(state: CutState, cuts: Sequence[InputCut]) -> Sequence[float]:
        num_open = Counter(map(kinds.get, cuts))
        return [1 / num_open[kinds.get(cut)] for cut in cuts]

    return weights

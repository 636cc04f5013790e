"""Kinds of cuts: classes of cuts with the same result, and a prior that weights them alike.

In a transformer a third of all cuts of inputs end up cutting the attention heads, because a
cut of any attention weight, or of its moments, propagates there; only one cuts the batch.
Drawn with equal weight per cut, the batch is hardly ever cut first. (TOAST, arXiv
2508.15010, groups dims that must be sharded alike.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from meshwright.planner.tree.cut_problem import CutProblem, CutState, InputCut
from meshwright.search import Prior


def kinds_of(problem: CutProblem) -> Mapping[InputCut, int]:
    """The number of the kind of each cut that is legal at the start.

    Two cuts are of one kind if both lead from the start to the same state.
    """
    start = problem.start()
    numbers: dict[bytes, int] = {}
    return {
        cut: numbers.setdefault(problem.apply(start, cut).key, len(numbers))
        for cut in problem.actions(start)
    }


def kinds_prior(problem: CutProblem) -> Prior:
    """A prior with equal weight for each kind, shared by its legal cuts."""
    kinds = kinds_of(problem)

    def weights(state: CutState, cuts: Sequence[InputCut]) -> Sequence[float]:
        num_legal = Counter(map(kinds.get, cuts))
        return [1 / num_legal[kinds.get(cut)] for cut in cuts]

    return weights

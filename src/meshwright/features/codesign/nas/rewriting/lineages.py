"""The engine of the search: children of the networks on the front, as draws.

A candidate is the list of the draws that lead to it from the original: each is the seed of
one proposal. So a candidate says all about itself: a journal of candidates is enough to go
on, and any process can build any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.search.arrays import Floats
from meshwright.search.trials import Batch, Goals, Range, Repeat, Space, Trial, front_of
from meshwright.search.trials.engines.engine import Proposals, check_counts
from meshwright.search.trials.space.coding import Draws

_LONGEST = 32
"""Replacements of one candidate at most."""

LINEAGES = Space({"draws": Repeat(Range(0, 2**31 - 1), 0, _LONGEST)})
"""All candidates; the one without draws is the original."""

ORIGINAL = {"draws": []}

GOALS = Goals({"score": "max", "cost": "min"}, {})


def acceptable(trials: Sequence[Trial]) -> list[Trial]:
    """The trials hardly worse than the original, which is the first.

    Their score is lower by at most its standard error on this much validation data. With
    more, children of children drift to networks that are worse in truth.
    """
    original = trials[0].values
    floor = original["score"] - original["error"]
    return [t for t in trials if t.is_feasible and t.values["score"] >= floor]


def best_of(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that no other dominates, of equal ones the first."""
    costs = np.array([trial.costs for trial in trials]).reshape(len(trials), -1)
    return [trials[i] for i in front_of(costs, np.zeros(len(trials)))]


@dataclass(frozen=True, slots=True)
class Lineages:
    """Children of parents that are drawn uniformly from the front of acceptable trials.

    method, problem: what the draws are seeds for, so that a journal is not taken for
        that of another search.
    batch: children at once; that many can be trained in parallel.
    """

    method: str
    problem: str
    batch: int = 2

    def __post_init__(self) -> None:
        check_counts(self, batch=1)

    def propose(self, draws: Draws) -> Proposals:
        """The original, then children without end."""
        trials: list[Trial] = [*(yield Batch(draws.initial(1)))]
        while trials[0].is_feasible:
            parents = [
                trial.candidate["draws"]
                for trial in best_of(acceptable(trials))
                if len(trial.candidate["draws"]) < _LONGEST
            ]
            children = [self._child(draws, parents) for _ in range(self.batch)]
            trials += yield Batch(np.array(children))

    def _child(self, draws: Draws, parents: Sequence[list[int]]) -> Floats:
        parent = parents[int(draws.rng.integers(len(parents)))] if parents else []
        child = [*parent, int(draws.rng.integers(2**31))]
        return draws.coding.code_of({"draws": child})

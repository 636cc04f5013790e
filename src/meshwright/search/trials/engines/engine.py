"""The protocol of engines: generators that yield codes and receive trials.

An engine never sees the budget, the clock, the workers or the journal, and draws all
random numbers from its `Draws`. So it proposes the same candidates however the trials are
run, and whether they are run or read from a journal.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from meshwright.errors import SearchError
from meshwright.search.arrays import Floats
from meshwright.search.trials.costs.trial import Trial
from meshwright.search.trials.space.coding import Draws


class Batch(NamedTuple):
    """Codes [N, G] to try at once; their number must not depend on the workers.

    fidelity: the share of a whole evaluation's effort.
    """

    codes: Floats
    fidelity: float = 1.0


type Proposals = Generator[Batch, Sequence[Trial], None]
"""A run of an engine: it yields batches, and receives the trials of each in order.

It ends if it has nothing left to propose.
"""


class TrialEngine(Protocol):
    """An algorithm: a frozen record of its parameters, whose `repr` says all of them."""

    def propose(self, draws: Draws) -> Proposals:
        """The batches of one search; equal for equal draws and trials."""
        ...


class Population:
    """Codes [N, G] with costs [N, M] and violations [N], by order of trial."""

    def __init__(self, num_genes: int, num_costs: int) -> None:
        self.codes = np.zeros((0, num_genes))
        self.costs = np.zeros((0, num_costs))
        self.violations = np.zeros(0)

    def add(self, codes: Floats, trials: Sequence[Trial]) -> None:
        self.codes = np.concatenate([self.codes, codes])
        self.costs = np.concatenate([self.costs, [trial.costs for trial in trials]])
        added = [trial.violation for trial in trials]
        self.violations = np.concatenate([self.violations, added])

    def keep(self, chosen: Any) -> None:
        """Keep some of the codes, by number or mask, in the given order."""
        self.codes = self.codes[chosen]
        self.costs = self.costs[chosen]
        self.violations = self.violations[chosen]

    def __len__(self) -> int:
        return len(self.codes)


def check_counts(engine: object, **least: int) -> None:
    """Fail if a count among an engine's parameters is below its least value."""
    for name, smallest in least.items():
        value = getattr(engine, name)
        if not isinstance(value, int) or value < smallest:
            what = f"{type(engine).__name__}({name}={value!r})"
            raise SearchError(f"{what}: wanted a whole number of {smallest} or more")

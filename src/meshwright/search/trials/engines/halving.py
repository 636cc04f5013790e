"""Successive halving: many candidates with little effort, the best with all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from meshwright.errors import SearchError
from meshwright.search.trials.costs.pareto import merit_order
from meshwright.search.trials.costs.trial import Trial
from meshwright.search.trials.engines.engine import Batch, Proposals, TrialEngine
from meshwright.search.trials.engines.nsga2 import Nsga2
from meshwright.search.trials.space.coding import Draws


@dataclass(frozen=True, slots=True)
class Halving:
    """Each batch of an engine, tried with rising fidelity, a share of it at each step.

    The engine learns of each candidate from its trial of highest fidelity (Jamieson and
    Talwalkar, AISTATS 2016). Only whole trials join the front.
    fidelities: shares of a whole evaluation's effort; the last is 1.
    keep: share of the candidates that go on, by rank and crowding distance.
    """

    engine: TrialEngine = field(default_factory=Nsga2)
    fidelities: tuple[float, ...] = (0.2, 1.0)
    keep: float = 0.5

    def __post_init__(self) -> None:
        steps = self.fidelities
        if (
            not steps
            or steps[-1] != 1
            or list(steps) != sorted({*steps})
            or steps[0] <= 0
        ):
            raise SearchError(
                f"fidelities {steps}: wanted rising shares, the last of them 1"
            )
        if not 0 < self.keep <= 1:
            raise SearchError(f"keep is {self.keep}; wanted a share above 0, at most 1")

    def propose(self, draws: Draws) -> Proposals:
        inner = self.engine.propose(draws)
        codes, _ = next(inner)
        while True:
            known: dict[int, Trial] = {}
            left = list(range(len(codes)))
            for step, fidelity in enumerate(self.fidelities):
                if step:
                    costs = np.array([known[i].costs for i in left])
                    over = np.array([known[i].violation for i in left])
                    count = math.ceil(self.keep * len(left))
                    left = [left[i] for i in merit_order(costs, over)[:count]]
                trials = yield Batch(codes[left], fidelity)
                known.update(zip(left, trials, strict=True))
            try:
                codes, _ = inner.send([known[i] for i in range(len(codes))])
            except StopIteration:
                return

"""Random sampling: the baseline that every other engine has to beat."""

import random
from collections.abc import Hashable
from dataclasses import dataclass

from meshwright.search.loop.engine import Exploration
from meshwright.search.loop.problem import Prior, Problem
from meshwright.search.loop.walk import Walker


@dataclass(frozen=True, slots=True)
class Sampling:
    """Independent random walks from the start.

    longest: largest number of actions of a walk; each walk has a random length.
    """

    seed: int
    longest: int = 64
    prior_fn: Prior | None = None
    patience: int | None = 10_000

    def explore[S, A: Hashable](self, problem: Problem[S, A]) -> Exploration[S, A]:
        rng = random.Random(self.seed)
        walker = Walker(problem, rng, self.prior_fn, self.longest)
        while True:
            yield from walker.roll_out([problem.start()], [])

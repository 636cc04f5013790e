"""Simulated annealing: a search that changes one sequence of actions at random.

Changes that raise the cost are accepted with a probability that falls with time.
"""

import math
import random
from collections.abc import Hashable
from dataclasses import dataclass

from meshwright.errors import SearchError
from meshwright.search.loop.engine import Exploration
from meshwright.search.loop.problem import Prior, Problem
from meshwright.search.loop.walk import Trajectory, Walker, mutate


@dataclass(frozen=True, slots=True)
class Annealing:
    """Simulated annealing in rounds (Kirkpatrick, Gelatt, Vecchi, Science 220, 1983).

    The first round begins at the start of the problem, each later one at the end of a
    random walk. In each round the temperature falls from `hot` to `cold`. Each round is
    twice as long as the one before, so that the engine need not know the budget.
    hot, cold: temperatures, as multiples of the mean absolute change of the cost so
        far.
    first_round: number of trials (candidates) of the first round.
    longest: largest number of actions in a sequence of actions.
    """

    seed: int
    hot: float = 1.0
    cold: float = 0.02
    first_round: int = 250
    longest: int = 64
    prior_fn: Prior | None = None
    patience: int | None = 10_000

    def __post_init__(self) -> None:
        if not (0 < self.cold <= self.hot and self.first_round > 0):
            raise SearchError(
                f"{self}: wanted 0 < cold <= hot and a round of one trial or more"
            )

    def explore[S, A: Hashable](self, problem: Problem[S, A]) -> Exploration[S, A]:
        rng = random.Random(self.seed)
        walker = Walker(problem, rng, self.prior_fn, self.longest)
        scale, length, start = _Scale(), self.first_round, problem.start()
        now: Trajectory[S, A] = Trajectory((start,), ())
        cost = yield problem.key(start), start, ()
        while True:
            for trial in range(length):
                new = mutate(walker, now)
                end = new.states[-1]
                new_cost = yield problem.key(end), end, new.actions
                heat = self.hot * (self.cold / self.hot) ** (trial / length)
                if scale.accepts(new_cost, cost, heat, rng):
                    now, cost = new, new_cost
            states, actions = [start], list[A]()
            cost = yield from walker.roll_out(states, actions)
            now = Trajectory(tuple(states), tuple(actions))
            length *= 2


class _Scale:
    """The mean absolute change of the cost over all trials so far.

    It is the unit of temperature.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0

    def accepts(self, new: float, old: float, heat: float, rng: random.Random) -> bool:
        """Whether to accept a change of the cost, by Metropolis's rule.

        The change is also added to the mean. heat: temperature, as a multiple of the
        mean.
        """
        if new == old or old == math.inf:
            return True
        if new == math.inf:
            return False
        self.total += abs(new - old)
        self.count += 1
        if new < old:
            return True
        return rng.random() < math.exp((old - new) * self.count / self.total / heat)

"""A search over programs that are screened (optimised only), and few compiled."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from meshwright.compile.tune.layouts.gain_model import GainModel
from meshwright.compile.tune.layouts.problem import LayoutProblem, State
from meshwright.compile.tune.layouts.screens import Screens
from meshwright.search.engines.surrogate import Surrogate
from meshwright.search.loop.engine import Budget, Stopped, search

_LEAST_GAIN = 1e-3
"""Relative gain that counts as one."""
_IDLE = 3
"""Rounds in a row without a candidate to compile that end the search."""
_LATER = 4
"""The first round screens so many times as many programs as each later one."""


@dataclass(slots=True, eq=False)
class ScreenedSearch:
    """Rounds that screen many candidates and compile few, from the best state so far.

    A round searches by predicted costs. It compiles the candidate of the least
    predicted cost, and the candidate that may turn out cheapest; their kernels make
    later predictions better. States all of whose kernels are known need not be
    compiled. The search ends when no candidate may still be cheaper than the best state.

    judge_fn: cost of a compiled state; `None` when the budget is spent.
    losses: number of compiled programs in a row without a gain that ends the search.
    """

    screens: Screens
    model: GainModel
    judge_fn: Callable[[State], float | None]
    seed: int
    num_screens: int
    losses: int
    best: State = ()
    compiled: set[object] = field(default_factory=set)

    def run(self, base: float) -> Stopped:
        """Find the best state, starting from () and its cost."""
        least, lost, idle = base, 0, 0
        self.compiled.add(self.screens.program(()))
        for number in itertools.count():
            self._look_around(number)
            least = self._take_known(least)
            promising = self._promising(least)
            for state in promising:
                cost = self.judge_fn(state)
                if cost is None:
                    return "evaluations"
                self.compiled.add(self.screens.program(state))
                is_gain = cost < least * (1 - _LEAST_GAIN)
                lost = 0 if is_gain else lost + 1
                if cost < least:
                    self.best, least = state, cost
            idle = 0 if promising else idle + 1
            if idle == _IDLE or lost >= self.losses:
                return "stalled"
        raise AssertionError("the rounds have no end")

    def _look_around(self, number: int) -> None:
        """Screen `number` neighbours of the best state, the most promising ones first."""
        count = self.num_screens if number == 0 else self.num_screens // _LATER
        for rest in without_one(self.best):
            self.screens.cost(rest)
        model = GainModel(self.model.sites, self.model.prior, list(self.model.seen))
        search(
            LayoutProblem(self.model.sites, self.screens.cost, self.best),
            Surrogate(self.seed + number, model),
            Budget(evaluations=count),
        )
        self.model.seen[:] = model.seen

    def _take_known(self, least: float) -> float:
        """Update `best` from the screened states of exactly known cost; returns its cost.

        least: cost of `best` before, returned if no such state is clearly cheaper.
        """
        limit = least * (1 - _LEAST_GAIN)
        better = [
            state
            for state in self.screens.kernels
            if self.screens.is_known(state) and self.screens.ranked(state) < limit
        ]
        if not better:
            return least
        self.best = min(better, key=lambda s: (self.screens.ranked(s), str(s)))
        return self.screens.cost(self.best)

    def _promising(self, least: float) -> list[State]:
        """States to compile next: the likely best, and the possibly best."""
        limit = least * (1 - _LEAST_GAIN)
        open_ = [
            state
            for state in self.screens.kernels
            if self.screens.least(state) < limit
            and not self.screens.is_known(state)
            and self.screens.program(state) not in self.compiled
        ]
        if not open_:
            return []
        likely = min(open_, key=lambda s: (self.screens.ranked(s), str(s)))
        possible = min(open_, key=lambda s: (self.screens.least(s), len(s), str(s)))
        same = self.screens.program(likely) == self.screens.program(possible)
        return [likely] if same else [likely, possible]


def without_one(state: State) -> Iterator[State]:
    """The states without one of the choices, in their order."""
    for choice in state:
        yield tuple(each for each in state if each != choice)

"""A search for layouts that screens many programs and compiles few.

To screen a program means to run the compiler's optimisations without generating code,
and to predict the cost from that of the resulting kernels in programs compiled before.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from meshwright.features.tune.layouts.gain_model import GainModel
from meshwright.features.tune.layouts.problem import LayoutProblem, State
from meshwright.features.tune.layouts.screens import Screens
from meshwright.search.engines.surrogate import Surrogate
from meshwright.search.loop.engine import Budget, Stopped, search

_LEAST_GAIN = 1e-3
"""Least relative decrease of the cost that counts as a gain."""
_IDLE = 3
"""Rounds in a row without a candidate to compile that end the search."""
_LATER = 4
"""Ratio of the number of programs screened in the first round to that in others."""


@dataclass(slots=True, eq=False)
class ScreenedSearch:
    """A search for layouts in rounds that screen many candidates and compile up to two.

    A round starts from the best state so far and searches by predicted costs. It
    compiles the candidate of the least predicted cost, and the candidate that may turn
    out cheapest. What their kernels cost makes later predictions better. A state whose
    kernels are all known need not be compiled. The search ends when no candidate may
    still be cheaper than the best state.

    judge_fn: cost of a state, compiled; `None` when the budget is spent.
    num_screens: number of programs that the first round screens.
    losses: number of compiled programs in a row without a gain that ends the search.
    compiled: keys of compiled programs, from `Screens.program`.
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
        """Find the best state; returns the reason for the end of the search.

        base: cost of the state without chosen layouts, from which the search starts.
        """
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
        """Screen states near the best one, the most promising ones first.

        number: number of the round, 0 for the first, which screens the most states.
        """
        count = self.num_screens if number == 0 else self.num_screens // _LATER
        for rest in without_one(self.best):
            self.screens.cost(rest)
        model = replace(self.model, seen=list(self.model.seen))
        search(
            LayoutProblem(self.model.sites, self.screens.cost, self.best),
            Surrogate(self.seed + number, model),
            Budget(evaluations=count),
        )
        self.model.seen[:] = model.seen

    def _take_known(self, least: float) -> float:
        """Update `best` from screened states whose cost is known; returns its cost.

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
        """At most two states to compile next.

        They have the least predicted cost, and the least cost if guesses are too high.
        States that are known, or cannot be cheaper than `least`, are left out.
        """
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


def pruned(screens: Screens, state: State) -> State:
    """The state without choices that save nothing, the ones that it begins with first.

    A choice is dropped only if the cost of the state without it is known, and not higher.
    """
    for choice in state:
        rest = tuple(each for each in state if each != choice)
        if screens.is_known(rest) and screens.cost(rest) <= screens.cost(state):
            state = rest
    return state


def without_one(state: State) -> Iterator[State]:
    """States made by taking one choice out of `state`, for each choice in order."""
    for choice in state:
        yield tuple(each for each in state if each != choice)

"""Dives at prices of memory, for large problems in which memory binds.

Messages know nothing of memory, and neighbourhoods that begin far from the limit stay
there. So each dive pays for memory: every choice costs the price of the memory that it
takes. The messages then bound the cost from below (a Lagrangian relaxation), and the
memory that the dive's choices use beyond the limit is a subgradient of this bound. Prices
move only at few rows that some dive has exceeded most (relax and cut: Lucena, Annals of
Operations Research 140, 2005), since many rows are alike: N, an instance of the IOPDDL
contest, has 36,022.
"""

import numpy as np

from meshwright.search.arrays import Floats, Ints
from meshwright.search.assignment.bounds.message_passing import Messages
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.primal.dive import dive
from meshwright.search.assignment.primal.repair import repair
from meshwright.search.assignment.problem.work_rates import DIVE_STEP, PASS

_STEPS = 40
"""Steps of a dive. One on N then takes 0.2 s, as long as the messages before it."""

_FIRST_SWEEPS, _SWEEPS = 40, 15
"""Forward and backward passes of messages before the first dive, and before others."""

_FIRST_PRICE = 0.02
"""Price of the whole slack of the row that the first dive exceeds most, over the bound."""

_TARGET = 1.15
"""Polyak's target is at most this factor above the best bound."""

_SHORTER = 0.6
"""Factor on the step length after a dive that has not raised the bound."""

_LEAST_FACTOR = 0.01
"""Factor on Polyak's step length that is not reduced any more."""

_PARTS = 32
"""Parts of the rows, in order of time, of which a dive lets one row each have a price.

One row a dive is enough for N, but not where each row has nodes of its own.
"""

_MOST_EXCESS = 1.0
"""Memory beyond a row's limit, over its slack, up to which a dive is repaired."""


class PricedDives:
    """A sequence of dives, and the prices of memory that it improves.

    choices: those of the last dive, which may exceed the limit; `None` before the first.
    row_prices: price of memory at each row in that dive.
    """

    def __init__(self, incumbent: Incumbent, messages: Messages) -> None:
        self._incumbent, self._graph = incumbent, messages.graph
        self._values = messages.arrays.values
        num_rows = incumbent.memory.num_rows
        self._next_prices = np.zeros(num_rows)
        self._has_price = np.zeros(num_rows, np.bool_)
        self._bound, self._factor = -np.inf, 1.0
        self.choices: Ints | None = None
        self.row_prices = self._next_prices

    def step(self) -> None:
        """Dive at the present prices, offer the result, and change the prices."""
        incumbent, memory = self._incumbent, self._incumbent.memory
        self.row_prices = self._next_prices
        costs = incumbent.priced(self.row_prices)
        messages = Messages(self._graph, costs, self._values)
        self._values = messages.arrays.values
        is_first = self.choices is None
        num_sweeps = _FIRST_SWEEPS if is_first else _SWEEPS
        bound = messages.sweep(num_sweeps) - float(self.row_prices @ memory.slack)
        incumbent.clock.count(PASS, 2 * num_sweeps * messages.num_entries)
        incumbent.raise_bound(bound)
        self.choices = dive(messages, _STEPS, incumbent.reduced.penalty, self._is_late)
        left = memory.left(self.choices)
        self._offer(left)
        excess = -left / np.maximum(memory.slack, 1e-9)
        self._add_rows(excess)
        if bound > self._bound:
            self._bound = bound
        else:
            self._factor = max(_SHORTER * self._factor, _LEAST_FACTOR)
        self._next_prices = self._moved(bound, excess, is_first)

    def _add_rows(self, excess: Floats) -> None:
        """Let the row of largest excess in each part of the rows have a price.

        Only rows that exceed the limit are added.
        """
        for part in np.array_split(np.arange(len(excess)), _PARTS):
            if len(part) and excess[worst := part[np.argmax(excess[part])]] > 0:
                self._has_price[worst] = True

    def _is_late(self, share: float) -> bool:
        incumbent = self._incumbent
        incumbent.clock.count(DIVE_STEP, 1.0)
        return incumbent.is_over

    def _offer(self, left: Floats) -> None:
        """Offer the dive's choices, repaired if they exceed memory a little.

        left: slack that they leave at each row.
        """
        incumbent = self._incumbent
        assert self.choices is not None
        slack = incumbent.memory.slack
        if (left < -_MOST_EXCESS * slack).any():
            return
        choices, rest = self.choices.copy(), left.copy()
        segments = incumbent.memory.segments
        if repair(self._graph, incumbent.reduced.costs, segments, rest, choices):
            incumbent.offer(choices)

    def _moved(self, bound: float, excess: Floats, is_first: bool) -> Floats:
        """Prices after a step along the subgradient, of Polyak's length.

        excess: memory beyond each row's limit, over its slack; negative below the limit.
        """
        slack = np.maximum(self._incumbent.memory.slack, 1e-9)
        prices = self.row_prices.copy()
        if is_first:
            worst = int(np.argmax(excess))
            prices[worst] = _FIRST_PRICE * abs(bound) / slack[worst]
            return prices
        slope = np.where(self._has_price, excess, 0.0)
        slope[(prices <= 0) & (slope < 0)] = 0.0
        norm = float((slope * slope).sum())
        if not norm:
            return prices
        target = min(
            self._incumbent.cost, self._bound + (_TARGET - 1) * abs(self._bound)
        )
        length = self._factor * max(target - bound, 1e-3 * abs(bound)) / norm
        return np.maximum(prices + length * slope / slack, 0.0)

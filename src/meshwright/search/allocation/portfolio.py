"""A portfolio of canonical searches that take turns, with ever more nodes a turn."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from enum import Enum
from functools import cache

import numpy as np

from meshwright.search.allocation.canonical import new_state, run
from meshwright.search.allocation.packing_state import (
    FOUND,
    NODES,
    NONE,
    OPEN,
)
from meshwright.search.allocation.sections import BufferColumns

_ORDERS = ("WAT", "TAW", "TWA")
"""Static orders of MiniMalloc's default portfolio."""

_SLICE = 10_000
"""Nodes between two looks at the clock: 0.05 to 0.5 s."""


class FitVerdict(Enum):
    """The answer to the question whether a packing within a capacity exists."""

    FOUND = FOUND
    NONE = NONE
    OPEN = OPEN


class Portfolio:
    """Searches for one packing within a capacity, one for each static order.

    The answer depends on the seed and the number of rounds, not on the number of threads:
    of several searches that end in the same slice, the first one counts.
    """

    def __init__(self, columns: BufferColumns, capacity: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n = len(columns.size)
        noises = [np.ones(n)] * len(_ORDERS)
        noises.append(np.exp(rng.normal(0.0, 0.3, n)))
        orders = (*_ORDERS, "AWT")
        self._columns = columns
        self._states = [
            new_state(columns, capacity, order, noise)
            for order, noise in zip(orders, noises, strict=True)
        ]
        self._winner = self._states[0]

    @property
    def nodes(self) -> int:
        """Placements that were tried, by all searches."""
        return sum(int(state.scalars[NODES]) for state in self._states)

    def rounds(self, pool: Executor, most_nodes: int | None) -> Iterator[FitVerdict]:
        """The verdict after each slice of work, until one of them is final.

        most_nodes: the end of the rounds, by all searches together.
        """
        turn = 2 * len(self._columns.size)
        while most_nodes is None or self.nodes < most_nodes:
            for start in range(0, turn, _SLICE):
                size = min(_SLICE, turn - start)
                verdict = self._slice(pool, size)
                yield verdict
                if verdict is not FitVerdict.OPEN:
                    return
            turn *= 2

    def run_all(self, most_nodes: int) -> FitVerdict:
        """The verdict after so many nodes at most, on one thread."""
        with ThreadPoolExecutor(1) as pool:
            return list(self.rounds(pool, most_nodes))[-1]

    def offsets(self) -> list[int]:
        """The offsets that were found, one per buffer without fixed offset."""
        return [int(offset) for offset in self._winner.offset]

    def _slice(self, pool: Executor, num_nodes: int) -> FitVerdict:
        outcomes = pool.map(
            lambda state: run(self._columns, state, num_nodes), self._states
        )
        for state, outcome in zip(self._states, list(outcomes), strict=True):
            if outcome != OPEN:
                self._winner = state
                return FitVerdict(outcome)
        return FitVerdict.OPEN


@cache
def compile_search(columns: Callable[[], BufferColumns]) -> None:
    """Compile the search, or load it from numba's cache, by a small one.

    Compiling takes some 15 s, once per installation.
    """
    Portfolio(columns(), 2, 0).run_all(1)

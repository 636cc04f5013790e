"""Several searches for a packing, which take turns with more and more nodes each turn."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache

import numpy as np

from meshwright.features.allocate.canonical.backtracking_trees import (
    no_trees,
    shipped_trees,
)
from meshwright.features.allocate.canonical.depth_first import new_state, run
from meshwright.features.allocate.canonical.packing_state import (
    FOUND,
    NONE,
    OPEN,
    FitVerdict,
)
from meshwright.features.allocate.problem.buffer import as_buffers
from meshwright.features.allocate.problem.sections import BufferColumns, columns_of
from meshwright.features.allocate.skyline.skyline import (
    advance_skyline,
    is_full,
    undo_all,
)
from meshwright.features.allocate.skyline.skyline_state import new_skyline

_ORDERS = ("WAT", "TAW", "TWA")
"""Static orders of MiniMalloc's default portfolio."""

_SLICE = 10_000
"""Nodes between two looks at the clock: 0.02 to 0.13 s on MiniMalloc's suite."""

_SLICE_BUFFERS = 500
"""Number of buffers from which on a slice has fewer nodes, in proportion.

A node of 5,000 buffers takes about ten times as long as one of 500; MiniMalloc's suite has
up to 454."""

_TAIL = 10_000
"""Nodes of each complete search before the restarting one joins them."""

_RESTART = 20_000
"""Nodes between two restarts, times Luby's sequence (benchmarks, `backtracking`)."""


_SKYLINE_RESTART = 500
"""Nodes between two restarts of the skyline search, times Luby's sequence."""


class CompleteSearch:
    """One search in a fixed order of buffers, which ends with a packing or a proof."""

    def __init__(self, columns: BufferColumns, capacity: int, order: str) -> None:
        self._columns = columns
        noise = np.ones(len(columns.size))
        self.state = new_state(columns, capacity, order, noise)

    @property
    def nodes(self) -> int:
        """Placements that were tried."""
        return int(self.state.scalars["nodes"][0])

    def advance(self, num_nodes: int) -> int:
        """Search on for at most `num_nodes` nodes; returns FOUND, NONE or OPEN."""
        return run(self._columns, self.state, no_trees(), num_nodes)


class RestartingSearch:
    """Searches in one random order of buffers after another, for the long tail.

    A search ends after `restart` nodes times Luby's sequence, and gives up placements
    that decision trees call hopeless. It proves that there is no packing only if nothing
    was given up.
    """

    def __init__(
        self, columns: BufferColumns, capacity: int, seed: int, restart: int
    ) -> None:
        self._columns, self._capacity, self._restart = columns, capacity, restart
        self._rng = np.random.default_rng(seed)
        self._turns = luby()
        self._trees = shipped_trees()
        self._nodes_before = 0
        self._begin()

    @property
    def nodes(self) -> int:
        """Placements that were tried, by all searches so far."""
        return self._nodes_before + int(self.state.scalars["nodes"][0])

    def advance(self, num_nodes: int) -> int:
        """Search on for about `num_nodes` nodes; returns FOUND, NONE or OPEN."""
        end = self.nodes + num_nodes
        while self.nodes < end:
            left = self._limit - int(self.state.scalars["nodes"][0])
            size = min(left, end - self.nodes)
            outcome = run(self._columns, self.state, self._trees, size)
            given_up = self.state.scalars["given_up"][0] > 0
            if outcome == FOUND or (outcome == NONE and not given_up):
                return outcome
            if outcome == NONE or self.state.scalars["nodes"][0] >= self._limit:
                self._nodes_before = self.nodes
                self._begin()
        return OPEN

    def _begin(self) -> None:
        noise = np.exp(self._rng.normal(0.0, 0.3, len(self._columns.size)))
        self.state = new_state(self._columns, self._capacity, "AWT", noise)
        self._limit = self._restart * next(self._turns)


class SkylineSearch:
    """A search that fills tight sections first, in one random order after another.

    It ends with a packing or a proof. It restarts after `_SKYLINE_RESTART` nodes times
    Luby's sequence, and keeps the weights of sections that have failed.
    """

    def __init__(self, columns: BufferColumns, capacity: int, seed: int) -> None:
        self._columns = columns
        self._rng = np.random.default_rng(seed)
        self._turns = luby()
        self.state = new_skyline(columns, capacity)
        self._key = self.state.key.copy()
        self._end = _SKYLINE_RESTART * next(self._turns)

    @property
    def nodes(self) -> int:
        """Placements that were tried, by all searches so far."""
        return int(self.state.scalars["nodes"][0])

    def advance(self, num_nodes: int) -> int:
        """Search on for at most `num_nodes` nodes; returns FOUND, NONE or OPEN."""
        last = self.nodes + num_nodes
        while self.nodes < last:
            size = min(last, self._end) - self.nodes
            outcome = advance_skyline(self._columns, self.state, size)
            if outcome != OPEN:
                return outcome
            if self.nodes >= self._end or is_full(self._columns, self.state):
                self._start_over()
        return OPEN

    def _start_over(self) -> None:
        undo_all(self._columns, self.state)
        noise = self._rng.normal(0.0, 0.3, len(self._key))
        self.state.key[:] = self._key * np.exp(noise)
        self._end = self.nodes + _SKYLINE_RESTART * next(self._turns)


class Portfolio:
    """Searches for one packing within a capacity, which take turns.

    Three of them are complete, in MiniMalloc's static orders, and one fills tight sections
    first. A restarting one joins them once each has tried `_TAIL` nodes. The answer depends
    on the seed and the number of rounds, not on the number of threads: of several searches
    that end in the same slice, the first one counts.
    """

    def __init__(self, columns: BufferColumns, capacity: int, seed: int) -> None:
        self._columns, self._capacity, self._seed = columns, capacity, seed
        self._searches: list[CompleteSearch | RestartingSearch | SkylineSearch] = [
            SkylineSearch(columns, capacity, seed),
            *(CompleteSearch(columns, capacity, order) for order in _ORDERS),
        ]
        self._winner = self._searches[0]
        self._restarts = False

    @property
    def nodes(self) -> int:
        """Placements that were tried, by all searches."""
        return sum(search.nodes for search in self._searches)

    def rounds(self, pool: Executor, most_nodes: int | None) -> Iterator[FitVerdict]:
        """Search in slices of work; yields the verdict after each slice until it is final.

        most_nodes: stop when all searches together have tried so many nodes. Then the
        restarting search takes part from the beginning, with short searches.
        """
        num_buffers = len(self._columns.size)
        turn = 2 * num_buffers
        most = _SLICE * _SLICE_BUFFERS // max(num_buffers, _SLICE_BUFFERS)
        if most_nodes is not None:
            self._join(2 * turn)
        while most_nodes is None or self.nodes < most_nodes:
            for start in range(0, turn, most):
                size = min(most, turn - start)
                verdict = self._slice(pool, size)
                yield verdict
                if verdict is not FitVerdict.OPEN:
                    return
            turn *= 2
            if turn > _TAIL and not self._restarts:
                self._join(_RESTART)

    def run_all(self, most_nodes: int) -> FitVerdict:
        """Search on one thread, until `most_nodes` nodes were tried by all searches."""
        with ThreadPoolExecutor(1) as pool:
            return list(self.rounds(pool, most_nodes))[-1]

    def offsets(self) -> list[int]:
        """The offsets that were found, one per buffer without fixed offset."""
        return self._winner.state.offset.tolist()

    def _join(self, restart: int) -> None:
        """Let a search take part that restarts after `restart` nodes (times Luby's)."""
        self._restarts = True
        self._searches.append(
            RestartingSearch(self._columns, self._capacity, self._seed, restart)
        )

    def _slice(self, pool: Executor, num_nodes: int) -> FitVerdict:
        outcomes = pool.map(lambda search: search.advance(num_nodes), self._searches)
        for search, outcome in zip(self._searches, list(outcomes), strict=True):
            if outcome != OPEN:
                self._winner = search
                return FitVerdict(outcome)
        return FitVerdict.OPEN


def luby() -> Iterator[int]:
    """Luby's sequence of restarts: 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, ..."""
    u = v = 1
    while True:
        yield v
        u, v = (u + 1, 1) if u & -u == v else (u, 2 * v)


@cache
def compile_search() -> None:
    """Compile the search by running a small one, or load it from numba's cache.

    Compiling takes some 15 s, once per installation.
    """
    two_buffers = columns_of(as_buffers([(0, 2, 1), (1, 3, 1)]))
    Portfolio(two_buffers, 2, 0).run_all(1)

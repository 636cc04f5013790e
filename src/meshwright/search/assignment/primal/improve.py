"""Large neighbourhoods: parts of a solution are replaced by exact optima of theirs.

Memory enters as a price at each row: rows that overflow become dearer, others cheaper,
so that solutions swing about the limit; what overflows a little is repaired.
"""

from __future__ import annotations

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.eliminate.order import (
    EliminationOrder,
    plan_elimination,
)
from meshwright.search.assignment.eliminate.subset import optimise
from meshwright.search.assignment.eliminate.sweep import EliminationSweep
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.primal.repair import repair
from meshwright.search.assignment.problem.cost_graph import CostGraph, ball

_WHOLE = 400  # nodes up to which a neighbourhood may be all of them
_SIZES = (30, 60, 120, _WHOLE)  # of neighbourhoods around a node
_CAPS = (10.0, 12.0, 14.0, 16.0)  # sizes of tables, to base 2: larger is slower
_SWEEP_CAP = 10.0  # the same, where all nodes of a large graph go at once
_NUM_SWEEPS = 4
_PATIENCE = 12  # rounds without gain before something is kicked


class NeighbourhoodSearch:
    """One thread's search: a solution, which may overflow, and prices of memory."""

    def __init__(
        self, pool: Incumbent, graph: CostGraph, plan: EliminationOrder, seed: int
    ) -> None:
        self.pool = pool
        self.graph = graph
        self.plan = plan
        self.random = np.random.default_rng(seed)
        self.movable = np.flatnonzero(pool.reduced.widths > 1)
        self.is_large = len(self.movable) > _WHOLE
        self.row_prices = np.zeros(pool.memory.num_rows)
        self.costs = pool.reduced.costs
        self.choices = np.zeros(pool.reduced.num_nodes, np.int64)
        self.stale = 0
        self._sweeps = [EliminationSweep(graph, plan)]
        self._suggested: tuple[Ints, Floats] | None = None

    def run(self) -> None:
        """Search until the pool says that it is over."""
        while not self.pool.is_over:
            self.round()

    def round(self) -> None:
        """Some neighbourhoods, then new prices; a kick where nothing moves any more."""
        before = self.pool.cost
        if self._suggested is not None and (before < np.inf or not self.is_large):
            self.start_from(*self._suggested)
            self._suggested = None
        if self.is_large:
            for sweep in self._all_sweeps():
                sweep.run(self.costs, self.choices)
        for _ in range(4):
            self._descend(self.choices, self._area(), self.costs)
            if self.pool.is_over:
                return
        self.settle()
        self._polish()
        self.stale = 0 if self.pool.cost < before else self.stale + 1
        if self.stale >= _PATIENCE:
            self._kick()

    def suggest(self, choices: Ints, row_prices: Floats) -> None:
        """From another thread: go on from there, after the present round."""
        self._suggested = choices, row_prices

    def start_from(self, choices: Ints, row_prices: Floats) -> None:
        """Go on from there; choices may overflow, and be forbidden."""
        self.choices, self.row_prices = choices.copy(), row_prices.copy()
        self._price()
        if self.is_large:
            for sweep in self._sweeps:
                sweep.run(self.costs, self.choices)
        for _ in range(2):
            self._descend(self.choices, self._area(), self.costs)

    def _descend(self, choices: Ints, area: Ints, costs: Floats) -> None:
        cap = self.random.choice(_CAPS)
        noise = self.random.random(len(area)) * self.random.choice([1.0, 3.0, 6.0])
        optimise(self.graph, costs, area, choices, cap, noise)

    def _all_sweeps(self) -> list[EliminationSweep]:
        """One more each time something fits, up to a few: each keeps other nodes."""
        if self.pool.choices is not None and len(self._sweeps) < _NUM_SWEEPS:
            noise = self.random.random(self.pool.reduced.num_nodes)
            plan = plan_elimination(self.graph, _SWEEP_CAP, self.pool.has_ended, noise)
            self._sweeps.append(EliminationSweep(self.graph, plan))
        return self._sweeps

    def _area(self) -> Ints:
        """All nodes, or those around one."""
        if not self.is_large and self.random.random() < 0.3:
            return self.movable
        return self._around(int(self.random.choice(self.movable)))

    def _around(self, node: int) -> Ints:
        size = int(self.random.choice(_SIZES))
        return ball(self.graph, node, size, int(self.random.integers(1 << 30)))

    def settle(self) -> None:
        """Offer the solution, repaired if it overflows; change prices accordingly."""
        memory = self.pool.memory
        left = memory.left(self.choices)
        if not len(left):
            self.pool.offer(self.choices)
            return
        over = left < 0
        if over.any():
            if self._is_near(left):
                self._mend(left.copy())
            self._raise_prices(left, over)
        else:
            self.pool.offer(self.choices)
            self.row_prices *= self.random.choice([0.7, 0.9, 0.97])
        self._price()

    def _is_near(self, left: Floats) -> bool:
        """Whether repair is worth a try; of a large kernel, prices do the rough work."""
        worst = int(np.argmin(left))
        is_near = bool(-left[worst] < 3 * self.pool.memory.slack[worst])
        return is_near or not self.is_large

    def _mend(self, left: Floats) -> None:
        """Repair a copy: at any length while there is nothing that fits."""
        mended = self.choices.copy()
        costs, memory = self.pool.reduced.costs, self.pool.memory
        before = -np.inf
        while left.min() > before:
            before = left.min()
            if repair(self.graph, costs, memory, left, mended):
                self.pool.offer(mended)
                return
            if self.pool.is_over or self.pool.choices is not None:
                return

    def _price(self) -> None:
        self.costs = self.pool.reduced.costs
        if len(self.row_prices):
            paid = self.pool.memory.prices(self.graph.starts, self.row_prices)
            self.costs = self.costs + paid

    def _raise_prices(self, left: Floats, over: Bools) -> None:
        scale = max(abs(self.pool.reduced.cost(self.choices)), 1e-9)
        if not scale < np.inf:
            return
        worst = int(np.argmin(left))
        is_rough = self.is_large and self.pool.choices is None
        share, most = (0.3, 4.0) if is_rough else (0.01, 1.8)
        step = scale * share / max(self.pool.memory.slack[worst], -left[worst], 1e-9)
        excess = -left[worst] / max(self.pool.memory.slack[worst], 1e-9)
        self.row_prices[over] *= 1.2 + min(most, excess)
        self.row_prices[worst] += step
        self.row_prices[over] += step * (left[over] / left[worst]) / over.sum()

    def _polish(self) -> None:
        """Neighbourhoods of the best solution that keep it within memory."""
        if self.pool.choices is None:
            return
        memory, starts = self.pool.memory, self.graph.starts
        for _ in range(4):
            mine = self.pool.choices.copy()
            factor = self.random.choice([0.0, 0.3, 1.0, 3.0])
            costs = self.pool.reduced.costs
            if memory.num_rows:
                costs = costs + memory.prices(starts, factor * self.row_prices)
            self._descend(mine, self._area(), costs)
            self.pool.offer(mine)

    def _kick(self) -> None:
        """Force one node to another choice until its surroundings have followed."""
        self.stale = 0
        if self.pool.choices is not None and self.random.random() < 0.5:
            self.choices = self.pool.choices.copy()
        node = int(self.random.choice(self.movable))
        trial = self.choices.copy()
        trial[node] = self.random.integers(self.pool.reduced.widths[node])
        for _ in range(3):
            area = self._around(node)
            self._descend(trial, area[area != node], self.costs)
        for _ in range(2):
            self._descend(trial, self._around(node), self.costs)
        self.choices = trial

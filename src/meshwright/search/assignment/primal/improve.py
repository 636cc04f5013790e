"""Large neighbourhood search (Shaw, CP 1998): parts of a solution are optimised.

Each part is optimised exactly. Memory has a price at each memory row (a time at which
the limit can bind). It is raised where the row overflows and lowered elsewhere, so that
solutions stay near the limit. A solution that overflows a little is repaired.
"""

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.eliminate.buckets import (
    Elimination,
    optimise_in_order,
)
from meshwright.search.assignment.eliminate.order import optimise, plan_elimination
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.primal.repair import repair
from meshwright.search.assignment.problem.reduced_problem import CostGraph
from meshwright.search.assignment.problem.work_rates import DESCEND, PLAN, SWEEP
from meshwright.search.compiled import compiled

WHOLE = 400  # with at most this many nodes, one neighbourhood may contain all
_SIZES = (30, 60, 120, WHOLE)  # nodes of a neighbourhood around one node
_CAPS = (10.0, 12.0, 14.0, 16.0)  # base-2 logarithms of the largest message
_SWEEP_CAP = 10.0  # the same, for an elimination of all nodes of a large graph
_NUM_SWEEPS = 4
_PATIENCE = 12  # rounds without gain before the solution is perturbed


class NeighbourhoodSearch:
    """The large neighbourhood search of one thread: its solution and memory prices.

    The present solution may exceed memory; only solutions that fit are offered to the
    incumbent.
    """

    def __init__(
        self, incumbent: Incumbent, graph: CostGraph, plan: Elimination, seed: int
    ) -> None:
        self.incumbent = incumbent
        self.reduced, self.memory = incumbent.reduced, incumbent.memory
        self.graph = graph
        self.plan = plan
        self.random = np.random.default_rng(seed)
        self.movable = np.flatnonzero(self.reduced.widths > 1)
        self.is_large = len(self.movable) > WHOLE
        self.row_prices = np.zeros(self.memory.num_rows)
        self.costs = self.reduced.costs
        self.choices = np.zeros(self.reduced.num_nodes, np.int64)
        self.stale = 0
        self._sweeps = [plan]
        self._suggested: tuple[Ints, Floats] | None = None

    def run(self) -> None:
        """Search until the solve is over."""
        while not self.incumbent.is_over:
            self.round()

    def round(self) -> None:
        """Optimise some neighbourhoods, and update the prices of memory.

        The solution is perturbed after several rounds without a gain.
        """
        before = self.incumbent.cost
        if self._suggested is not None and (before < np.inf or not self.is_large):
            self.start_from(*self._suggested)
            self._suggested = None
        if self.is_large:
            for sweep in self._all_sweeps():
                self._sweep(sweep)
        for _ in range(4):
            self._descend(self.choices, self._area(), self.costs)
            if self.incumbent.is_over:
                return
        self.settle()
        self._polish()
        self.stale = 0 if self.incumbent.cost < before else self.stale + 1
        if self.stale >= _PATIENCE:
            self._perturb()

    def suggest(self, choices: Ints, row_prices: Floats) -> None:
        """Ask to replace solution and prices before the next round.

        Other threads may call it.
        """
        self._suggested = choices, row_prices

    def start_from(self, choices: Ints, row_prices: Floats) -> None:
        """Replace solution and prices at once; the choices may be infeasible."""
        self.choices, self.row_prices = choices.copy(), row_prices.copy()
        self.costs = self.incumbent.priced(self.row_prices)
        if self.is_large:
            for sweep in self._sweeps:
                self._sweep(sweep)
        for _ in range(2):
            self._descend(self.choices, self._area(), self.costs)

    def _sweep(self, sweep: Elimination) -> None:
        optimise_in_order(self.graph, self.costs, sweep, self.choices)
        self.incumbent.clock.count(SWEEP, len(self.graph.ends))

    def _descend(self, choices: Ints, area: Ints, costs: Floats) -> None:
        cap = self.random.choice(_CAPS)
        noise = self.random.random(len(area)) * self.random.choice([1.0, 3.0, 6.0])
        optimise(self.graph, costs, area, choices, cap, noise)
        self.incumbent.clock.count(DESCEND, len(area))

    def _all_sweeps(self) -> list[Elimination]:
        """Elimination orders of the whole graph; each leaves out other nodes.

        The nodes left out keep their choices. Once a solution fits into memory, each
        call adds an order, up to `_NUM_SWEEPS`.
        """
        if self.incumbent.choices is not None and len(self._sweeps) < _NUM_SWEEPS:
            noise = self.random.random(self.reduced.num_nodes)
            plan = plan_elimination(
                self.graph, _SWEEP_CAP, lambda: self.incumbent.is_over, noise
            )
            self._sweeps.append(plan)
            self.incumbent.clock.count(PLAN, len(self.graph.ends))
        return self._sweeps

    def _area(self) -> Ints:
        """A random set of nodes to optimise: all nodes, or the nodes around one.

        Nodes with a single choice are left out of the set of all nodes.
        """
        if not self.is_large and self.random.random() < 0.3:
            return self.movable
        return self._around(int(self.random.choice(self.movable)))

    def _around(self, node: int) -> Ints:
        size = int(self.random.choice(_SIZES))
        return ball(self.graph, node, size, int(self.random.integers(1 << 30)))

    def settle(self) -> None:
        """Offer the present solution to the incumbent, and update the memory prices.

        A solution that exceeds memory is repaired first. The incumbent keeps the best
        solution.
        """
        left = self.memory.left(self.choices)
        if not len(left):
            self.incumbent.offer(self.choices)
            return
        over = left < 0
        if over.any():
            if self._is_near(left):
                self._repair(left.copy())
            self._raise_prices(left, over)
        else:
            self.incumbent.offer(self.choices)
            self.row_prices *= self.random.choice([0.7, 0.9, 0.97])
        self.costs = self.incumbent.priced(self.row_prices)

    def _is_near(self, left: Floats) -> bool:
        """Whether the solution is near enough to the memory limit to be repaired.

        On large problems the prices first have to bring memory down. left: slack that
        the solution leaves at each memory row.
        """
        worst = int(np.argmin(left))
        is_near = bool(-left[worst] < 3 * self.memory.slack[worst])
        return is_near or not self.is_large

    def _repair(self, left: Floats) -> None:
        """Offer a copy of the solution that is repaired to fit into memory.

        Before the first feasible solution, repairs are repeated as long as they help.
        left: slack that the solution leaves at each memory row.
        """
        repaired = self.choices.copy()
        before = -np.inf
        while left.min() > before:
            before = left.min()
            segments = self.memory.segments
            if repair(self.graph, self.reduced.costs, segments, left, repaired):
                self.incumbent.offer(repaired)
                return
            if self.incumbent.is_over or self.incumbent.choices is not None:
                return

    def _raise_prices(self, left: Floats, over: Bools) -> None:
        scale = max(abs(self.reduced.cost(self.choices)), 1e-9)
        if not scale < np.inf:
            return
        worst = int(np.argmin(left))
        is_rough = self.is_large and self.incumbent.choices is None
        share, most = (0.3, 4.0) if is_rough else (0.01, 1.8)
        slack = self.memory.slack[worst]
        step = scale * share / max(slack, -left[worst], 1e-9)
        excess = -left[worst] / max(slack, 1e-9)
        self.row_prices[over] *= 1.2 + min(most, excess)
        self.row_prices[worst] += step
        self.row_prices[over] += step * (left[over] / left[worst]) / over.sum()

    def _polish(self) -> None:
        """Improve the best solution found so far, by optimising parts of it."""
        if self.incumbent.choices is None:
            return
        for _ in range(4):
            mine = self.incumbent.choices.copy()
            factor = self.random.choice([0.0, 0.3, 1.0, 3.0])
            costs = self.incumbent.priced(factor * self.row_prices)
            self._descend(mine, self._area(), costs)
            self.incumbent.offer(mine)

    def _perturb(self) -> None:
        """Give one node a random choice, and optimise the nodes around it.

        So the search leaves a local optimum.
        """
        self.stale = 0
        if self.incumbent.choices is not None and self.random.random() < 0.5:
            self.choices = self.incumbent.choices.copy()
        node = int(self.random.choice(self.movable))
        trial = self.choices.copy()
        trial[node] = self.random.integers(self.reduced.widths[node])
        for _ in range(3):
            area = self._around(node)
            self._descend(trial, area[area != node], self.costs)
        for _ in range(2):
            self._descend(trial, self._around(node), self.costs)
        self.choices = trial


@compiled
def ball(graph: CostGraph, node: int, size: int, seed: int) -> Ints:
    """The `size` nodes nearest to a node, itself included; fewer in a small graph.

    The search is breadth first, and visits edges in random order.
    """
    found = np.empty(size, np.int64)
    seen = np.zeros(len(graph.starts) - 1, np.bool_)
    found[0] = node
    seen[node] = True
    count = 1
    at = 0
    while at < count:
        i = found[at]
        first = graph.edge_starts[i]
        degree = graph.edge_starts[i + 1] - first
        seed = (seed * 1103515245 + 12345) % 2147483648  # the C standard's generator
        for step in range(degree):
            e = graph.edges[first + (seed // 65536 + step) % degree]
            j = graph.ends[e, 0] + graph.ends[e, 1] - i
            if not seen[j] and count < size:
                seen[j] = True
                found[count] = j
                count += 1
        at += 1
    return found[:count]

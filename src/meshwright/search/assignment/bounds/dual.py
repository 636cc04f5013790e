"""Lower bounds: nodes that elimination cannot reach are split, memory is priced.

A node whose table would be too large becomes one copy for each of its edges. The rest
is then eliminated exactly, and gives a bound for any way to share a split node's costs
among its copies, and any prices of memory (Lagrange; dual decomposition, Komodakis et
al., ICCV 2007). Subgradients make copies agree and memory fit, and the bound rise.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.bounds.messages import Messages
from meshwright.search.assignment.eliminate.buckets import eliminate
from meshwright.search.assignment.eliminate.order import EliminationOrder, plan_within
from meshwright.search.assignment.eliminate.sweep import padded
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.problem.cost_graph import CostGraph, graph_of
from meshwright.search.assignment.problem.reduced_problem import (
    choice_owners,
    starts_of,
)

_PATIENCE = 20  # steps without gain before steps become half as long
_AIM = 0.1  # part by which the bound is to rise next, if the best cost is farther
_LEAST = 1e-4  # part of Polyak's step; then long ones again


class DualBound:
    """A relaxation of a kernel, and the multipliers at which it stands.

    share: of each copy's choice, added to its part of the costs; sums to nothing over
        the copies of a choice
    row_prices: of memory, not negative
    """

    def __init__(
        self,
        pool: Incumbent,
        graph: CostGraph,
        plan: EliminationOrder,
        messages: Messages,
    ) -> None:
        self.pool = pool
        self.original = graph
        num = len(graph.starts) - 1
        kept = plan.kept(num)
        self.messages = messages
        self.at_kept = kept[graph.ends]
        self.source = np.concatenate([np.arange(num), graph.ends[self.at_kept]])
        self.is_split = bool(kept.any())
        self.num_kept = int(kept.sum())
        self.graph = _split(graph, self.at_kept, self.source)
        copies = np.arange(num, len(self.source))
        self.order = np.concatenate([copies, plan.order])
        self.rank = np.full(len(self.source), len(self.source))
        self.rank[self.order] = np.arange(len(self.order))
        self.scopes, self.sizes = _scopes(self.graph, num, self.rank, plan)
        self._index_choices()
        self.share = np.zeros(self.graph.starts[-1])
        self.share[graph.starts[-1] :] = messages.split(self.at_kept)
        self.row_prices = np.zeros(pool.memory.num_rows)
        self.best = -np.inf
        self.at_best = self.share, self.row_prices
        self.factor = 1.0  # of Polyak's step
        self.since = 0  # steps since the bound rose
        self.picked = np.zeros(len(self.source), np.int64)

    def _index_choices(self) -> None:
        """For each choice of the split graph, the original choice, and its copies."""
        widths = np.diff(self.graph.starts)
        offset = self.original.starts[:-1][self.source]
        steps = np.arange(self.graph.starts[-1]) - np.repeat(
            self.graph.starts[:-1], widths
        )
        active = np.zeros(len(self.source), np.bool_)
        active[self.order] = True
        self.active = active[choice_owners(self.graph.starts)]
        self.origin = np.repeat(offset, widths) + steps
        self.copies = np.bincount(
            self.origin[self.active], minlength=int(self.original.starts[-1])
        )

    def tightened(self, work: float) -> DualBound:
        """A relaxation with larger tables, at the same prices of memory."""
        plan = plan_within(self.original, work, self.pool.has_ended)
        dual = DualBound(self.pool, self.original, plan, self.messages)
        dual.row_prices = self.at_best[1].copy()
        in_both = self.at_kept & dual.at_kept
        dual.share[dual._entries(in_both)] = self.at_best[0][self._entries(in_both)]
        return dual

    def _entries(self, edge_ends: Bools) -> Bools:
        """A mask of the choices that belong to the copies for these ends of edges."""
        wanted = np.zeros(len(self.source), np.bool_)
        wanted[len(self.original.starts) - 1 :] = edge_ends[self.at_kept]
        return wanted[choice_owners(self.graph.starts)]

    def evaluate(self) -> float:
        """The bound at the present multipliers; sets what each node picked."""
        memory = self.pool.memory
        priced = self.pool.reduced.costs
        if memory.num_rows:
            priced = priced + memory.prices(self.original.starts, self.row_prices)
        costs = (priced / np.maximum(self.copies, 1))[self.origin] + self.share
        unary = _padded(costs, self.graph.starts)
        picks = np.empty(len(self.order), np.int64)
        num = len(self.source)
        nodes = np.arange(num)
        eliminate(
            self.graph, nodes, nodes, self.rank, self.order, self.scopes, self.sizes,
            unary, picks,
        )  # fmt: skip
        self.picked[self.order] = picks
        return self._value(costs) - float(self.row_prices @ memory.slack)

    def _value(self, costs: Floats) -> float:
        graph, x = self.graph, self.picked
        widths = np.diff(graph.starts)
        one, two = graph.ends[:, 0], graph.ends[:, 1]
        pairs = graph.table_starts[:-1] + x[one] * widths[two] + x[two]
        nodes = graph.starts[:-1][self.order] + x[self.order]
        return float(costs[nodes].sum() + graph.tables[pairs].sum())

    def weights(self) -> Floats:
        """To which part each original choice was picked by the copies of its node."""
        at = self.graph.starts[:-1][self.order] + self.picked[self.order]
        picked = np.bincount(self.origin[at], minlength=len(self.copies))
        return picked / np.maximum(self.copies, 1)

    def step(self, value: float, target: float, factor: float) -> None:
        """Move the multipliers along a subgradient, by Polyak's rule."""
        memory = self.pool.memory
        weights = self.weights()
        picked = np.zeros(len(self.share))
        picked[self.graph.starts[:-1][self.order] + self.picked[self.order]] = 1
        slope = np.where(self.active, picked - weights[self.origin], 0.0)
        over = memory.used(self.original.starts, weights) - memory.slack
        relative = over / np.maximum(memory.slack, 1e-9)
        relative[(self.row_prices <= 0) & (relative < 0)] = 0
        norm = _squares(slope) + _squares(relative)
        if norm > 0:
            length = factor * max(target - value, 1e-9 * abs(target)) / norm
            self.share += length * slope
            self.row_prices = np.maximum(
                self.row_prices + length * relative / np.maximum(memory.slack, 1e-9), 0
            )

    def decode(self) -> Ints:
        """Choices of the original nodes: what most copies picked last."""
        weights = self.weights()
        starts = self.original.starts
        return np.array(
            [np.argmax(weights[a:b]) for a, b in pairwise(starts)], np.int64
        )


def ascend(dual: DualBound, steps: int) -> None:
    """Raise the bound by so many steps, or until the pool's search is over."""
    pool = dual.pool
    for _ in range(steps):
        value = dual.evaluate()
        dual.since += 1
        if value > dual.best:
            dual.since = 0 if value > dual.best + 1e-5 * abs(dual.best) else dual.since
            dual.best = value
            dual.at_best = dual.share.copy(), dual.row_prices.copy()
            pool.raise_bound(value)
        if pool.is_over:
            return
        if dual.since >= _PATIENCE:
            dual.since = 0
            dual.factor = dual.factor / 2 if dual.factor > _LEAST else 1.0
            dual.share, dual.row_prices = (part.copy() for part in dual.at_best)
            value = dual.evaluate()
        aim = dual.best + _AIM * abs(dual.best) + 1e-12
        dual.step(value, min(pool.cost, aim), dual.factor)


def _scopes(
    graph: CostGraph, num: int, rank: Ints, plan: EliminationOrder
) -> tuple[Ints, Ints]:
    """Neighbours of each node when it goes: of a copy, the one it has, if still there."""
    copies = len(graph.starts) - 1 - num
    scopes, sizes = padded(((0,),) * copies + plan.scopes)
    at = graph.edges[graph.edge_starts[num:-1]]
    other = graph.ends[at].sum(axis=1) - np.arange(num, num + copies)
    is_there = rank[other] > np.arange(copies)
    sizes[:copies] = is_there
    scopes[:copies, 0] = other
    return scopes, sizes


def _split(graph: CostGraph, at_kept: Bools, source: Ints) -> CostGraph:
    """The graph in which every edge's end at a kept node is a copy of its own."""
    ends = graph.ends.copy()
    ends[at_kept] = np.arange(len(graph.starts) - 1, len(source))
    starts = starts_of(np.diff(graph.starts)[source])
    return graph_of(starts, ends, graph.table_starts, graph.tables)


def _squares(numbers: Floats) -> float:
    """Their sum; not by BLAS, whose threads take more time than they save."""
    return float((numbers * numbers).sum())


def _padded(costs: Floats, starts: Ints) -> Floats:
    widths = np.diff(starts)
    out = np.zeros((len(widths), int(widths.max())))
    owners = choice_owners(starts)
    out[owners, np.arange(len(costs)) - starts[:-1][owners]] = costs
    return out

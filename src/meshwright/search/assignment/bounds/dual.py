"""Lagrangian lower bounds: nodes of high degree are split, memory gets prices.

A node whose elimination message would be too large becomes one copy for each of its
edges (node splitting: Choi, Chavira and Darwiche, UAI 2007). The graph of copies is then
eliminated exactly. Its optimum is a lower bound for any multipliers that share a node's
cost among its copies, and for any prices of memory (dual decomposition: Komodakis et
al., ICCV 2007). Subgradient steps raise the bound: copies come to agree and memory to fit.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints, owners_of, starts_of
from meshwright.search.assignment.bounds.messages import Messages
from meshwright.search.assignment.eliminate.buckets import Elimination, eliminate
from meshwright.search.assignment.eliminate.order import EliminationOrder, plan_within
from meshwright.search.assignment.eliminate.sweep import padded, ranks
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.problem.cost_graph import CostGraph, graph_of

_PATIENCE = 20  # steps without gain before the step length is halved
_TARGET_RISE = 0.1  # share of the bound by which Polyak's target is above it, at most
_LEAST_FACTOR = 1e-4  # factor of Polyak's step below which it is reset to 1


class DualBound:
    """A Lagrangian relaxation of a reduced problem, and its present multipliers.

    share: addend to the cost of each copy's choice; zero when summed over the copies
    row_prices: price of memory at each row, not negative
    factor: present factor of Polyak's step length
    stale: steps since the bound last rose
    """

    def __init__(
        self,
        incumbent: Incumbent,
        graph: CostGraph,
        plan: EliminationOrder,
        messages: Messages,
    ) -> None:
        self.incumbent = incumbent
        self.original = graph
        num = len(graph.starts) - 1
        kept = plan.kept(num)
        self.messages = messages
        self.at_kept = kept[graph.ends]
        self.source = np.concatenate([np.arange(num), graph.ends[self.at_kept]])
        self.is_split = bool(kept.any())
        self.num_kept = int(kept.sum())
        self.graph = _split(graph, self.at_kept, self.source)
        self.elimination = _elimination(self.graph, num, plan)
        self._index_choices()
        self.share = np.zeros(self.graph.starts[-1])
        self.share[graph.starts[-1] :] = messages.split(self.at_kept)
        self.row_prices = np.zeros(incumbent.memory.num_rows)
        self.best = -np.inf
        self.at_best = self.share, self.row_prices
        self.factor = 1.0
        self.stale = 0
        self.picked = np.zeros(len(self.source), np.int64)

    @property
    def order(self) -> Ints:
        """Nodes of the split graph in the order in which they are eliminated."""
        return self.elimination.order

    def _index_choices(self) -> None:
        """Set the original choice of each choice of the split graph, and its copies."""
        widths = np.diff(self.graph.starts)
        offset = self.original.starts[:-1][self.source]
        steps = np.arange(self.graph.starts[-1]) - np.repeat(
            self.graph.starts[:-1], widths
        )
        active = np.zeros(len(self.source), np.bool_)
        active[self.order] = True
        self.active = active[owners_of(self.graph.starts)]
        self.origin = np.repeat(offset, widths) + steps
        self.copies = np.bincount(
            self.origin[self.active], minlength=int(self.original.starts[-1])
        )

    def tightened(self, work: float) -> DualBound:
        """A relaxation with larger messages, at the best multipliers of this one."""
        plan = plan_within(self.original, work, self.incumbent.has_ended)
        dual = DualBound(self.incumbent, self.original, plan, self.messages)
        dual.row_prices = self.at_best[1].copy()
        in_both = self.at_kept & dual.at_kept
        dual.share[dual._entries(in_both)] = self.at_best[0][self._entries(in_both)]
        return dual

    def _entries(self, edge_ends: Bools) -> Bools:
        """A mask of the choices of the copies that stand for these ends of edges."""
        wanted = np.zeros(len(self.source), np.bool_)
        wanted[len(self.original.starts) - 1 :] = edge_ends[self.at_kept]
        return wanted[owners_of(self.graph.starts)]

    def evaluate(self) -> float:
        """The bound at the present multipliers; sets the optimal choices in `picked`."""
        memory = self.incumbent.memory
        priced = self.incumbent.reduced.costs
        if memory.num_rows:
            priced = priced + memory.prices(self.original.starts, self.row_prices)
        costs = (priced / np.maximum(self.copies, 1))[self.origin] + self.share
        unary = _padded(costs, self.graph.starts)
        picks = np.empty(len(self.order), np.int64)
        eliminate(self.graph, self.elimination, unary, picks)
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
        """Share of the copies of a node that picked each of its choices."""
        at = self.graph.starts[:-1][self.order] + self.picked[self.order]
        picked = np.bincount(self.origin[at], minlength=len(self.copies))
        return picked / np.maximum(self.copies, 1)

    def step(self, value: float, target: float, factor: float) -> None:
        """Move the multipliers along a subgradient by `factor` times Polyak's step."""
        memory = self.incumbent.memory
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
        """Choices of the original nodes, by majority vote of their copies."""
        weights = self.weights()
        starts = self.original.starts
        return np.array(
            [np.argmax(weights[a:b]) for a, b in pairwise(starts)], np.int64
        )


def ascend(dual: DualBound, steps: int) -> None:
    """Take subgradient steps, or fewer if the search is over before."""
    incumbent = dual.incumbent
    for _ in range(steps):
        value = dual.evaluate()
        dual.stale += 1
        if value > dual.best:
            dual.stale = 0 if value > dual.best + 1e-5 * abs(dual.best) else dual.stale
            dual.best = value
            dual.at_best = dual.share.copy(), dual.row_prices.copy()
            incumbent.raise_bound(value)
        if incumbent.is_over:
            return
        if dual.stale >= _PATIENCE:
            dual.stale = 0
            dual.factor = dual.factor / 2 if dual.factor > _LEAST_FACTOR else 1.0
            dual.share, dual.row_prices = (part.copy() for part in dual.at_best)
            value = dual.evaluate()
        target = dual.best + _TARGET_RISE * abs(dual.best) + 1e-12
        dual.step(value, min(incumbent.cost, target), dual.factor)


def _elimination(graph: CostGraph, num: int, plan: EliminationOrder) -> Elimination:
    """The elimination of all copies, each with a scope of at most one node, then `plan`.

    num: nodes of the original graph; the copies follow them.
    """
    nodes = np.arange(len(graph.starts) - 1)
    copies = nodes[num:]
    order = np.concatenate([copies, plan.order])
    rank = ranks(order, len(nodes))
    scopes, sizes = padded(((0,),) * len(copies) + plan.scopes)
    other = graph.ends[graph.edges[graph.edge_starts[num:-1]]].sum(axis=1) - copies
    sizes[: len(copies)] = rank[other] > np.arange(len(copies))
    scopes[: len(copies), 0] = other
    return Elimination(nodes, nodes, order, rank, scopes, sizes)


def _split(graph: CostGraph, at_kept: Bools, source: Ints) -> CostGraph:
    """The graph in which each edge of a kept node ends at a copy of its own."""
    ends = graph.ends.copy()
    ends[at_kept] = np.arange(len(graph.starts) - 1, len(source))
    starts = starts_of(np.diff(graph.starts)[source])
    return graph_of(starts, ends, graph.table_starts, graph.tables)


def _squares(numbers: Floats) -> float:
    """Sum of squares, without BLAS, whose threads take more time than they save."""
    return float((numbers * numbers).sum())


def _padded(costs: Floats, starts: Ints) -> Floats:
    widths = np.diff(starts)
    out = np.zeros((len(widths), int(widths.max())))
    owners = owners_of(starts)
    out[owners, np.arange(len(costs)) - starts[:-1][owners]] = costs
    return out

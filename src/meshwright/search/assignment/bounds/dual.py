"""Lagrangian lower bounds: nodes of high degree are split, and memory has prices.

A node whose elimination message would be too large is replaced by one copy for each of
its edges (node splitting: Choi, Chavira and Darwiche, UAI 2007). The graph with copies
is then solved exactly by bucket elimination. Its optimum is a lower bound for any
multipliers that divide a node's cost among its copies, and for any prices of memory
(dual decomposition: Komodakis et al., ICCV 2007). Subgradient steps raise the bound:
they make the copies of a node agree, and the choices fit into memory.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints, owners_of, ranges, starts_of
from meshwright.search.assignment.bounds.message_passing import Messages
from meshwright.search.assignment.eliminate.buckets import Elimination, eliminate
from meshwright.search.assignment.eliminate.order import num_entries, plan_within
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.problem.reduced_problem import CostGraph, graph_of
from meshwright.search.assignment.problem.work_rates import DUAL_STEP, ELIMINATE, PLAN

_PATIENCE = 20  # steps without gain before the step length is halved
_TARGET_RISE = 0.1  # Polyak's target is at most this share above the bound
_LEAST_FACTOR = 1e-4  # the factor on Polyak's step is reset to 1 if it is below this


class DualBound:
    """A Lagrangian relaxation of a reduced problem, and its present multipliers.

    share: addend to the cost of each choice of a copy; the addends of all copies of a
        node sum to zero
    row_prices: price of memory at each memory row, not negative
    picked: optimal choices at the present multipliers, as indices into the costs of the
        split graph; set by `evaluate`
    factor: factor on Polyak's step length
    stale: number of steps since the bound last rose
    """

    def __init__(
        self, incumbent: Incumbent, plan: Elimination, messages: Messages
    ) -> None:
        self.incumbent = incumbent
        graph = self.original = messages.graph
        kept = plan.rank == len(plan.nodes)
        self.messages = messages
        self.at_kept = kept[graph.ends]
        self.source = np.concatenate([plan.nodes, graph.ends[self.at_kept]])
        self.num_kept = int(kept.sum())
        self.graph = _split(graph, self.at_kept, self.source)
        self.elimination = _elimination(self.graph, plan)
        self.num_entries = num_entries(self.graph, self.elimination)
        self.order = self.elimination.order
        self._index_choices()
        self.share = np.zeros(self.graph.starts[-1])
        self.share[graph.starts[-1] :] = messages.split(self.at_kept)
        self.row_prices = np.zeros(incumbent.memory.num_rows)
        self.best = -np.inf
        self.at_best = self.share, self.row_prices
        self.factor = 1.0
        self.stale = 0
        self.picked = np.zeros(0, np.int64)

    def _index_choices(self) -> None:
        """Find the original choice of each choice in the split graph.

        Also counts the copies of each original choice.
        """
        active = np.zeros(len(self.source), np.bool_)
        active[self.order] = True
        self.active = active[owners_of(self.graph.starts)]
        widths = np.diff(self.graph.starts)
        self.in_width = np.arange(widths.max()) < widths[:, None]
        self.origin = ranges(self.original.starts[self.source], widths)
        self.copies = np.bincount(
            self.origin[self.active], minlength=int(self.original.starts[-1])
        )

    def tightened(self, work: float) -> DualBound:
        """A tighter relaxation, which starts from the best multipliers so far.

        It splits fewer nodes, so that its elimination messages are larger. work: limit
        on the work of elimination, as in `plan_within`.
        """
        plan = plan_of(self.incumbent, self.original, work)
        dual = DualBound(self.incumbent, plan, self.messages)
        dual.row_prices = self.at_best[1].copy()
        in_both = self.at_kept & dual.at_kept
        dual.share[dual._entries(in_both)] = self.at_best[0][self._entries(in_both)]
        return dual

    def _entries(self, edge_ends: Bools) -> Bools:
        """A mask of the choices of the copies that belong to some ends of edges.

        edge_ends: mask of these ends, [E, 2]; ends without a copy are ignored.
        """
        wanted = np.zeros(len(self.source), np.bool_)
        wanted[len(self.original.starts) - 1 :] = edge_ends[self.at_kept]
        return wanted[owners_of(self.graph.starts)]

    def evaluate(self) -> float:
        """The lower bound at the present multipliers; also sets `picked`."""
        priced = self.incumbent.priced(self.row_prices)
        costs = (priced / np.maximum(self.copies, 1))[self.origin] + self.share
        unary = np.zeros(self.in_width.shape)
        unary[self.in_width] = costs
        picks = np.empty(len(self.order), np.int64)
        graph, x = self.graph, np.zeros(len(self.source), np.int64)
        eliminate(graph, self.elimination, unary, picks)
        self.incumbent.clock.count(ELIMINATE, self.num_entries)
        self.incumbent.clock.count(DUAL_STEP, len(self.share))
        x[self.order] = picks
        self.picked = graph.starts[self.order] + picks
        value = float(costs[self.picked].sum() + graph.tables[graph.pairs(x)].sum())
        return value - float(self.row_prices @ self.incumbent.memory.slack)

    def weights(self) -> Floats:
        """Share of a node's copies that picked each of its original choices."""
        picked = np.bincount(self.origin[self.picked], minlength=len(self.copies))
        return picked / np.maximum(self.copies, 1)

    def step(self, value: float, target: float, factor: float) -> None:
        """Move the multipliers along a subgradient by `factor` times Polyak's step.

        value: lower bound at the present multipliers.
        target: lower bound to aim for.
        """
        memory = self.incumbent.memory
        weights = self.weights()
        picked = np.zeros(len(self.share))
        picked[self.picked] = 1
        slope = np.where(self.active, picked - weights[self.origin], 0.0)
        over = memory.used(self.original.starts, weights) - memory.slack
        relative = over / np.maximum(memory.slack, 1e-9)
        relative[(self.row_prices <= 0) & (relative < 0)] = 0
        # Not a dot product: BLAS would start threads, which cost more time than they
        # save.
        norm = float((slope * slope).sum()) + float((relative * relative).sum())
        if norm > 0:
            length = factor * max(target - value, 1e-9 * abs(target)) / norm
            self.share += length * slope
            self.row_prices = np.maximum(
                self.row_prices + length * relative / np.maximum(memory.slack, 1e-9), 0
            )

    def decode(self) -> Ints:
        """Choices of the original nodes, each by majority vote of the node's copies."""
        weights = self.weights()
        starts = self.original.starts
        return np.array(
            [np.argmax(weights[a:b]) for a, b in pairwise(starts)], np.int64
        )


def plan_of(incumbent: Incumbent, graph: CostGraph, work: float) -> Elimination:
    """The order of `plan_within` for an incumbent's search.

    The work of planning is counted on the incumbent's clock.
    """
    plan = plan_within(graph, work, lambda: incumbent.is_over)
    incumbent.clock.count(PLAN, len(graph.ends))
    return plan


def ascend(dual: DualBound, steps: int) -> None:
    """Raise a Lagrangian bound by up to `steps` subgradient steps.

    There are fewer steps if the search is over before.
    """
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


def _elimination(graph: CostGraph, plan: Elimination) -> Elimination:
    """An elimination order of the split graph: first all copies, then `plan`.

    A copy has at most one neighbour, so that its message is small.
    """
    num = len(plan.nodes)  # the copies follow the original nodes
    nodes = np.arange(len(graph.starts) - 1)
    copies = nodes[num:]
    order = np.concatenate([copies, plan.order])
    rank = np.full(len(nodes), len(nodes))
    rank[order] = np.arange(len(order))
    other = graph.ends[graph.edges[graph.edge_starts[num:-1]]].sum(axis=1) - copies
    scopes = np.pad(plan.scopes, ((len(copies), 0), (0, 0)))
    scopes[: len(copies), 0] = other
    sizes = np.pad(plan.sizes, (len(copies), 0))
    sizes[: len(copies)] = rank[other] > np.arange(len(copies))
    return Elimination(nodes, nodes, order, rank, scopes, sizes)


def _split(graph: CostGraph, at_kept: Bools, source: Ints) -> CostGraph:
    """The graph in which some ends of edges have their own copy of the node there.

    at_kept: mask of these ends, [E, 2]. source: original node of each node and copy.
    """
    ends = graph.ends.copy()
    ends[at_kept] = np.arange(len(graph.starts) - 1, len(source))
    starts = starts_of(np.diff(graph.starts)[source])
    return graph_of(starts, ends, graph.table_starts, graph.tables)

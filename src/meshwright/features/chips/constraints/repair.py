"""The constraint solver: random valid partitions, or valid partitions near a candidate.

SAMPLE draws the chip of one op after another from given weights, restricted to its
domain (the chips that are still possible), and propagates the constraints. FIX first
keeps the candidate's chips as long as they are in the domains, then gives each other op
the allowed chip nearest to the candidate's. Both undo the last decision on a conflict.
If there are too many conflicts, neighbouring chips of the candidate are merged until it
is valid, so that every call returns a partition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.features.chips.constraints.network import Network, network_of
from meshwright.features.chips.constraints.propagation import (
    TRAIL,
    Domains,
    new_domains,
    position,
    propagate,
    refresh,
    shrink,
)
from meshwright.features.chips.graph.chip_graph import ChipGraph
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled, compiled_in_place

_MOST_CONFLICTS = 200
"""Number of conflicts after which chips are merged instead."""


class ChipSolver:
    """A constraint solver for partitions of one graph over a number of chips."""

    def __init__(self, graph: ChipGraph, num_chips: int) -> None:
        self.graph, self.num_chips = graph, num_chips
        self.network = network_of(graph)
        self.merged = 0
        """The number of answers that had to merge chips."""

    def sample(self, weights: Floats, rng: np.random.Generator) -> Ints:
        """A random valid partition [N]: ops, in random order, get chips by weight.

        weights: weight of each chip for each op, [N, C].
        """
        order = rng.permutation(self.graph.num_ops)
        return self._solve(order, np.zeros(0, np.int64), weights, rng)

    def fix(self, candidate: Ints, order: Ints) -> Ints:
        """A valid partition [N] near a candidate that may be invalid.

        order: ops in the order in which they may keep their chips, the first most
            likely.
        """
        rng = np.random.default_rng(0)
        return self._solve(order, candidate, np.zeros((0, 0)), rng)

    def _solve(
        self, order: Ints, candidate: Ints, weights: Floats, rng: np.random.Generator
    ) -> Ints:
        domains = new_domains(self.graph.num_ops, self.num_chips)
        draws = rng.random(4 * len(order) + 4 * _MOST_CONFLICTS)
        solved = _decide(
            self.network, domains, order, candidate, weights, draws, _MOST_CONFLICTS
        )
        if solved:
            return close_holes(np.log2(domains.domain).astype(np.int64))
        self.merged += 1
        if not len(candidate):
            candidate = (weights + draws[:1]).argmax(axis=1)
        return merge_chips(self.graph, candidate)


def close_holes(chips: Ints) -> Ints:
    """The partition with the chips in use renumbered 0, 1, ... in order."""
    return np.unique(chips, return_inverse=True)[1].reshape(-1).astype(np.int64)


def merge_chips(graph: ChipGraph, candidate: Ints) -> Ints:
    """A valid partition, made from any candidate by merging chips.

    Ops first move up to the chips of the ops that they read. Then chips between two
    joined ones are merged as long as a constraint is broken.
    """
    chips = candidate.copy()
    edges: Sequence[tuple[int, int]] = graph.edges.tolist()
    for u, v in sorted(edges, key=lambda edge: edge[1]):
        chips[v] = max(chips[v], chips[u])
    domains = new_domains(graph.num_ops, int(chips.max()) + 1)
    while True:
        chips = close_holes(chips)
        domains.joined[:] = 0
        for u, v in edges:
            if chips[u] != chips[v]:
                domains.joined[chips[u]] |= 1 << int(chips[v])
        if refresh(domains):
            return chips
        low = next(
            a
            for a in reversed(range(chips.max()))
            if domains.joined[a] & domains.far[a]
        )
        broken = int(domains.joined[low] & domains.far[low])
        high = (broken & -broken).bit_length() - 1
        chips[(chips > low) & (chips < high)] = high


@compiled
def _decide(  # noqa: PLR0913  all of one call
    g: Network,
    d: Domains,
    order: Ints,
    candidate: Ints,
    weights: Floats,
    draws: Floats,
    most_conflicts: int,
) -> bool:
    """Narrow the domain of every op to one chip; false after too many conflicts.

    Ops are visited in `order`. If there is a candidate, they are visited twice: the
    first time only to keep the candidate's chips where that is possible.
    """
    n = len(order)
    is_fix = len(candidate) > 0
    steps = 2 * n if is_fix else n
    made_at = np.zeros(n + 1, np.int64)
    made_trail = np.zeros(n + 1, np.int64)
    made_op = np.zeros(n + 1, np.int64)
    made_bit = np.zeros(n + 1, np.int64)
    made = at = conflicts = drawn = 0
    while at < steps:
        op = int(order[at % n])
        domain = int(d.domain[op])
        if domain & (domain - 1) == 0:
            at += 1
            continue
        if is_fix:
            bit = _nearest(domain, int(candidate[op]))
            if at < n and bit != 1 << candidate[op]:
                at += 1
                continue
        else:
            bit = _drawn(domain, weights[op], draws[drawn % len(draws)])
            drawn += 1
        made_at[made], made_trail[made] = at, d.scalars[TRAIL]
        made_op[made], made_bit[made] = op, bit
        made += 1
        holds = shrink(d, op, bit) and propagate(g, d)
        while not holds:
            conflicts += 1
            if made == 0 or conflicts > most_conflicts:
                return False
            made -= 1
            at = made_at[made]
            _undo(g, d, made_trail[made])
            holds = shrink(d, made_op[made], ~made_bit[made]) and propagate(g, d)
    return True


@compiled_in_place
def _undo(g: Network, d: Domains, length: int) -> None:
    """Undo changes of domains until the trail has a given length.

    Which chips are joined by an edge is then computed again.
    """
    while d.scalars[TRAIL] > length:
        d.scalars[TRAIL] -= 1
        trail = d.scalars[TRAIL]
        d.domain[d.trail_op[trail]] = d.trail_domain[trail]
    for chip in range(len(d.joined)):
        d.joined[chip] = 0
    for op in range(len(d.domain)):
        domain = d.domain[op]
        if domain & (domain - 1) == 0:
            for e in range(g.next_at[op], g.next_at[op + 1]):
                other = d.domain[g.nexts[e]]
                if other & (other - 1) == 0 and other != domain:
                    d.joined[position(domain)] |= other
    refresh(d)


@compiled_in_place
def _nearest(domain: int, chip: int) -> int:
    """The bit of a domain (set of chips) that is nearest to a chip.

    Of two that are equally near, it is the lower one.
    """
    for distance in range(64):
        if chip >= distance and domain >> (chip - distance) & 1:
            return 1 << (chip - distance)
        if chip + distance < 63 and domain >> (chip + distance) & 1:
            return 1 << (chip + distance)
    return 0


@compiled_in_place
def _drawn(domain: int, weights: Floats, draw: float) -> int:
    """A random bit of a domain (set of chips), drawn by the chips' weights.

    If all weights are zero, all chips of the domain are equally likely. draw: random
    number from 0 to 1.
    """
    total, count = 0.0, 0
    for chip in range(len(weights)):
        if domain >> chip & 1:
            total += weights[chip]
            count += 1
    left = draw * (total if total > 0 else count)
    last = 0
    for chip in range(len(weights)):
        if domain >> chip & 1:
            last = 1 << chip
            left -= weights[chip] if total > 0 else 1.0
            if left < 0:
                return last
    return last

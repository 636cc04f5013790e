"""Domination among costs: ranks, crowding, and the order of merit.

A dominates B if no cost of A is larger and one is smaller. Constraints come first: a
feasible point dominates an infeasible one, and of two infeasible ones the one of smaller
violation (Deb et al., IEEE TEC 2002). Letters in shapes: N points, M costs.
"""

from __future__ import annotations

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints


def dominates(
    costs: Floats, violations: Floats, others: Floats, other_violations: Floats
) -> Bools:
    """Whether point i of the first dominates point j of the others, [N, K].

    costs: [N, M]. violations: [N]. others: [K, M]. other_violations: [K].
    """
    no_worse = np.ones((len(costs), len(others)), np.bool_)
    better = np.zeros_like(no_worse)
    for column in range(costs.shape[1]):
        mine, theirs = costs[:, column, None], others[None, :, column]
        no_worse &= mine <= theirs
        better |= mine < theirs
    mine, theirs = violations[:, None], other_violations[None, :]
    return (mine < theirs) | ((mine == theirs) & no_worse & better)


def pareto_ranks(costs: Floats, violations: Floats) -> Ints:
    """The front of each point: 0 if none dominates it, 1 once those are taken away, ..."""
    above = dominates(costs, violations, costs, violations)
    ranks = np.full(len(costs), -1)
    counts, rank = above.sum(axis=0), 0
    while (front := (counts == 0) & (ranks < 0)).any():
        ranks[front] = rank
        counts -= above[front].sum(axis=0)
        rank += 1
    return ranks


def crowding(costs: Floats) -> Floats:
    """Crowding distance of each point among [N, M]: how far its neighbours are apart.

    It is infinite for the ends of each cost.
    """
    size, distances = len(costs), np.zeros(len(costs))
    for column in costs.T:
        order = np.argsort(column, kind="stable")
        ranked = column[order]
        if not np.isfinite(ranked[-1]) or ranked[-1] <= ranked[0]:
            continue
        span = ranked[-1] - ranked[0]
        distances[order[[0, -1]]] = np.inf
        if size > 2:
            distances[order[1:-1]] += (ranked[2:] - ranked[:-2]) / span
    return distances


def merit_order(costs: Floats, violations: Floats) -> Ints:
    """The points from best to worst: by rank, then the less crowded first."""
    ranks = pareto_ranks(costs, violations)
    spread = np.zeros(len(costs))
    for rank in range(ranks.max(initial=-1) + 1):
        members = ranks == rank
        spread[members] = crowding(costs[members])
    return np.lexsort((-spread, ranks))


def front_of(costs: Floats, violations: Floats) -> Ints:
    """The feasible points that no other dominates, by number.

    Of points with equal costs only the first counts.
    """
    feasible = np.flatnonzero(violations == 0)
    # Points after one that dominates them are dropped block by block: memory stays small.
    kept = np.zeros(0, np.int64)
    for block in np.array_split(feasible, max(1, len(feasible) // _BLOCK)):
        points = np.concatenate([kept, block])
        _, firsts = np.unique(costs[points], axis=0, return_index=True)
        points = points[np.sort(firsts)]
        zeros = np.zeros(len(points))
        above = dominates(costs[points], zeros, costs[points], zeros)
        kept = points[~above.any(axis=0)]
    return kept


_BLOCK = 500
"""Points that are compared at once, each with each."""

"""The order in which elimination visits all nodes of a graph, however many they are."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.problem.cost_graph import CostGraph

_CAPS = (8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0)


@dataclass(frozen=True, slots=True, eq=False)
class EliminationOrder:
    """Who is eliminated when, and beside whom.

    order: the nodes that are eliminated; the others are kept, and separate the rest
    scopes: the neighbours that a node then has
    work: the size of all tables
    """

    order: Ints
    scopes: tuple[tuple[int, ...], ...]
    work: float

    def kept(self, num_nodes: int) -> Bools:
        """A mask of the nodes that are not eliminated."""
        mask = np.ones(num_nodes, np.bool_)
        mask[self.order] = False
        return mask


def never() -> bool:
    """For plans that are to be finished."""
    return False


def plan_elimination(
    graph: CostGraph,
    log_cap: float,
    has_ended: Callable[[], bool] = never,
    noise: Floats | None = None,
) -> EliminationOrder:
    """Smallest table first; where all are too large, a node of most neighbours is kept.

    log_cap: the largest size of a table, to base 2
    has_ended: asked now and then; once it says so, all that is left is kept
    noise: for each node, between 0 and 1: shuffles which are kept
    """
    logs = np.log2(np.diff(graph.starts))
    merit = np.zeros(len(logs)) if noise is None else noise
    order: list[int] = []
    for node in _ordered(_adjacency(graph), logs, log_cap, merit):
        if len(order) % 64 == 0 and has_ended():
            break
        order.append(node)
    around = _adjacency(graph)
    for node in set(range(len(around))) - set(order):
        for other in around[node]:
            around[other].discard(node)
    scopes = [tuple(sorted(_remove(around, node))) for node in order]
    work = sum(
        2.0 ** (logs[node] + sum(logs[j] for j in scope))
        for node, scope in zip(order, scopes, strict=True)
    )
    return EliminationOrder(np.array(order, np.int64), tuple(scopes), float(work))


def plan_within(
    graph: CostGraph, work: float, has_ended: Callable[[], bool] = never
) -> EliminationOrder:
    """The plan of largest tables that are not more work than that, or of the least."""
    best = plan_elimination(graph, _CAPS[0], has_ended)
    for cap in _CAPS[1:]:
        if best.work > work / 4 or len(best.order) == len(graph.starts) - 1:
            break
        larger = plan_elimination(graph, cap, has_ended)
        if larger.work > work or has_ended():
            break
        best = larger
    return best


def _adjacency(graph: CostGraph) -> list[set[int]]:
    around: list[set[int]] = [set() for _ in range(len(graph.starts) - 1)]
    for i, j in graph.ends.tolist():
        around[i].add(j)
        around[j].add(i)
    return around


def _remove(around: list[set[int]], node: int) -> set[int]:
    """Take a node out and join its neighbours; returns them."""
    scope = around[node]
    for other in scope:
        around[other] |= scope
        around[other] -= {node, other}
    return scope


def _ordered(
    around: list[set[int]], logs: Floats, log_cap: float, noise: Floats
) -> Iterator[int]:
    weights = [logs[i] + math.fsum(logs[j] for j in a) for i, a in enumerate(around)]
    heap = [(w, i) for i, w in enumerate(weights)]
    heapq.heapify(heap)
    gone = [False] * len(around)
    while heap:
        weight, node = heapq.heappop(heap)
        if gone[node] or weight != weights[node]:
            continue
        if weight > log_cap:
            heapq.heappush(heap, (weight, node))
            alive = (i for i, is_gone in enumerate(gone) if not is_gone)
            node = max(alive, key=lambda i: (len(around[i]) * (1 - noise[i] / 2), -i))
            scope = around[node]
            for other in scope:
                around[other].discard(node)
        else:
            scope = _remove(around, node)
            yield node
        gone[node] = True
        for other in scope:
            weights[other] = logs[other] + math.fsum(logs[j] for j in around[other])
            heapq.heappush(heap, (weights[other], other))

"""Elimination orders of large graphs: greedy, smallest message first."""

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
    """An order of elimination, and the neighbours of each node at its elimination.

    order: the nodes that are eliminated; the others are kept fixed and separate the rest
    scopes: neighbours of each node when it is eliminated
    work: entries of all messages together, times the choices of each sender
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
    """A stop condition that never holds."""
    return False


def plan_elimination(
    graph: CostGraph,
    log_cap: float,
    has_ended: Callable[[], bool] = never,
    noise: Floats | None = None,
) -> EliminationOrder:
    """A greedy order, smallest message first.

    If all messages are too large, the node of most neighbours is kept fixed.


    log_cap: base-2 logarithm of the largest message, times the choices of its sender.
    has_ended: polled every 64 nodes; once it holds, the remaining nodes are kept.
    noise: per node, between 0 and 1; randomises which nodes are kept.
    """
    log_widths = np.log2(np.diff(graph.starts))
    shuffle = np.zeros(len(log_widths)) if noise is None else noise
    order: list[int] = []
    for node in _ordered(_adjacency(graph), log_widths, log_cap, shuffle):
        if len(order) % 64 == 0 and has_ended():
            break
        order.append(node)
    neighbours = _adjacency(graph)
    for node in set(range(len(neighbours))) - set(order):
        for other in neighbours[node]:
            neighbours[other].discard(node)
    scopes = [tuple(sorted(_remove(neighbours, node))) for node in order]
    work = sum(
        2.0 ** (log_widths[node] + sum(log_widths[j] for j in scope))
        for node, scope in zip(order, scopes, strict=True)
    )
    return EliminationOrder(np.array(order, np.int64), tuple(scopes), float(work))


def plan_within(
    graph: CostGraph, work: float, has_ended: Callable[[], bool] = never
) -> EliminationOrder:
    """The order of largest messages whose work is within a budget, or of least work."""
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
    neighbours: list[set[int]] = [set() for _ in range(len(graph.starts) - 1)]
    for i, j in graph.ends.tolist():
        neighbours[i].add(j)
        neighbours[j].add(i)
    return neighbours


def _remove(neighbours: list[set[int]], node: int) -> set[int]:
    """Remove a node and connect its neighbours with each other; returns them."""
    scope = neighbours[node]
    for other in scope:
        neighbours[other] |= scope
        neighbours[other] -= {node, other}
    return scope


def _ordered(
    neighbours: list[set[int]], log_widths: Floats, log_cap: float, noise: Floats
) -> Iterator[int]:
    weights = [
        log_widths[i] + math.fsum(log_widths[j] for j in a)
        for i, a in enumerate(neighbours)
    ]
    heap = [(w, i) for i, w in enumerate(weights)]
    heapq.heapify(heap)
    gone = [False] * len(neighbours)
    while heap:
        weight, node = heapq.heappop(heap)
        if gone[node] or weight != weights[node]:
            continue
        if weight > log_cap:
            heapq.heappush(heap, (weight, node))
            alive = (i for i, is_gone in enumerate(gone) if not is_gone)
            node = max(
                alive, key=lambda i: (len(neighbours[i]) * (1 - noise[i] / 2), -i)
            )
            scope = neighbours[node]
            for other in scope:
                neighbours[other].discard(node)
        else:
            scope = _remove(neighbours, node)
            yield node
        gone[node] = True
        for other in scope:
            weights[other] = log_widths[other] + math.fsum(
                log_widths[j] for j in neighbours[other]
            )
            heapq.heappush(heap, (weights[other], other))

"""Exact optimisation of a neighbourhood: nodes of a subset, ordered and eliminated."""

from __future__ import annotations

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.eliminate.buckets import (
    Elimination,
    eliminate,
    fixed_costs,
)
from meshwright.search.assignment.problem.cost_graph import CostGraph
from meshwright.search.compiled import compiled, compiled_in_place

_MAX_SCOPE = 24  # neighbours of an eliminated node: each has at least two choices


@compiled
def optimise(
    graph: CostGraph,
    costs: Floats,
    subset: Ints,
    choices: Ints,
    log_cap: float,
    noise: Floats,
) -> int:
    """Improve the choices of a subset in place; returns how many nodes kept theirs.

    A node keeps its choice if its message would be too large. If none does, the choices
    of the subset are optimal, given the rest.

    log_cap: base-2 logarithm of the largest message
    noise: for each position of the subset, added to the logarithm of its message when
        the next node is chosen
    """
    starts, ends = graph.starts, graph.ends
    n = len(subset)
    position = np.full(len(starts) - 1, -1)
    for a in range(n):
        position[subset[a]] = a
    adjacent = np.zeros((n, n), np.bool_)
    logs = np.empty(n)
    for a in range(n):
        i = subset[a]
        logs[a] = np.log2(starts[i + 1] - starts[i])
        for at in range(graph.edge_starts[i], graph.edge_starts[i + 1]):
            e = graph.edges[at]
            b = position[ends[e, 0] + ends[e, 1] - i]
            if b >= 0:
                adjacent[a, b] = True
    order = order_nodes(adjacent.copy(), logs, log_cap, noise)
    scopes, sizes = find_scopes(adjacent, order)
    rank = np.full(n, n)
    for step in range(len(order)):
        rank[order[step]] = step
    elimination = Elimination(subset, position, order, rank, scopes, sizes)
    unary = fixed_costs(graph, costs, elimination, choices)
    picks = np.empty(len(order), np.int64)
    eliminate(graph, elimination, unary, picks)
    for step in range(len(order)):
        choices[subset[order[step]]] = picks[step]
    return n - len(order)


@compiled
def order_nodes(adjacent: Bools, logs: Floats, log_cap: float, noise: Floats) -> Ints:
    """Order of elimination, smallest message first; the other nodes keep their choice."""
    n = len(logs)
    order = np.empty(n, np.int64)
    alive = np.ones(n, np.bool_)
    weight = logs.copy()
    degree = np.zeros(n, np.int64)
    for a in range(n):
        for b in range(n):
            if adjacent[a, b]:
                weight[a] += logs[b]
                degree[a] += 1
    count = 0
    for _ in range(n):
        node, largest = find_smallest_and_largest(alive, weight, degree, noise)
        if weight[node] > log_cap or degree[node] > _MAX_SCOPE:
            node = largest
        else:
            join_neighbours(adjacent, node, logs, weight, degree)
            order[count] = node
            count += 1
        alive[node] = False
        for b in range(n):
            if adjacent[node, b]:
                adjacent[node, b] = False
                adjacent[b, node] = False
                weight[b] -= logs[node]
                degree[b] -= 1
    return order[:count]


@compiled_in_place
def find_smallest_and_largest(
    alive: Bools, weight: Floats, degree: Ints, noise: Floats
) -> tuple[int, int]:
    """The node of the smallest message, and the node of most neighbours."""
    smallest = -1
    largest = -1
    for a in range(len(alive)):
        if not alive[a]:
            continue
        if smallest < 0 or weight[a] + noise[a] < weight[smallest] + noise[smallest]:
            smallest = a
        if largest < 0 or degree[a] + noise[a] > degree[largest] + noise[largest]:
            largest = a
    return smallest, largest


@compiled_in_place
def join_neighbours(
    adjacent: Bools, node: int, logs: Floats, weight: Floats, degree: Ints
) -> None:
    """Connect all neighbours of a node with each other, as its message does."""
    n = len(logs)
    for a in range(n):
        if not adjacent[node, a]:
            continue
        for b in range(n):
            if adjacent[node, b] and a != b and not adjacent[a, b]:
                adjacent[a, b] = True
                weight[a] += logs[b]
                degree[a] += 1


@compiled
def find_scopes(adjacent: Bools, order: Ints) -> tuple[Ints, Ints]:
    """Neighbours of each node at its elimination, padded, and their number."""
    scopes = np.empty((len(order), _MAX_SCOPE), np.int64)
    sizes = np.zeros(len(order), np.int64)
    alive = np.zeros(len(adjacent), np.bool_)
    for a in order:
        alive[a] = True
    for step in range(len(order)):
        a = order[step]
        alive[a] = False
        for b in range(len(adjacent)):
            if adjacent[a, b] and alive[b]:
                scopes[step, sizes[step]] = b
                sizes[step] += 1
        for p in range(sizes[step]):
            for q in range(sizes[step]):
                if p != q:
                    adjacent[scopes[step, p], scopes[step, q]] = True
    return scopes, sizes

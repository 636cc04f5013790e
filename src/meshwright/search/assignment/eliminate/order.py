"""Greedy orders of bucket elimination: the node with the smallest message is next."""

import heapq
import math
from collections.abc import Callable, Iterator

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.eliminate.buckets import (
    Elimination,
    optimise_in_order,
)
from meshwright.search.assignment.problem.reduced_problem import CostGraph
from meshwright.search.compiled import compiled, compiled_in_place

_MAX_SCOPE = 24  # most remaining neighbours of a node when it is eliminated
_CAPS = (8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0)  # values of `log_cap`


def plan_elimination(
    graph: CostGraph,
    log_cap: float,
    has_ended: Callable[[], bool] = lambda: False,
    noise: Floats | None = None,
) -> Elimination:
    """A greedy order in which to eliminate nodes, smallest message first.

    Whenever all messages are too large, the node with most neighbours is left out: it
    will keep its present choice, and its neighbours' messages become smaller.
    log_cap: base-2 logarithm of the largest allowed work of a message (see
        `num_entries`).
    has_ended: called every 64 nodes; once it is true, all remaining nodes are left out.
    noise: for each node a number from 0 to 1, which randomises the nodes that are left
        out.
    """
    log_widths = np.log2(np.diff(graph.starts))
    shuffle = np.zeros(len(log_widths)) if noise is None else noise
    scope_of: dict[int, set[int]] = {}
    for node, scope in _ordered(_adjacency(graph), log_widths, log_cap, shuffle):
        if len(scope_of) % 64 == 0 and has_ended():
            break
        scope_of[node] = scope
    order, eliminated = list(scope_of), scope_of.keys()
    lists = [sorted(eliminated & scope) for scope in scope_of.values()]
    sizes = np.array([len(each) for each in lists], np.int64)
    scopes = np.zeros((len(order), max(1, int(sizes.max(initial=1)))), np.int64)
    for step, each in enumerate(lists):
        scopes[step, : len(each)] = each
    nodes = np.arange(len(log_widths))
    rank = np.full(len(nodes), len(nodes))
    rank[order] = np.arange(len(order))
    return Elimination(nodes, nodes, np.array(order, np.int64), rank, scopes, sizes)


def plan_within(
    graph: CostGraph, work: float, has_ended: Callable[[], bool] = lambda: False
) -> Elimination:
    """The elimination order that leaves out fewest nodes within a limit of work.

    A node that is left out keeps its present choice. If no order is within the limit,
    the result is the order of least work.
    work: limit on the result of `num_entries`.
    """
    best = plan_elimination(graph, _CAPS[0], has_ended)
    least = num_entries(graph, best)
    for cap in _CAPS[1:]:
        if least > work / 4 or len(best.order) == len(best.nodes):
            break
        larger = plan_elimination(graph, cap, has_ended)
        more = num_entries(graph, larger)
        if more > work or has_ended():
            break
        best, least = larger, more
    return best


def num_entries(graph: CostGraph, plan: Elimination) -> float:
    """Work of an elimination: entries of each message times choices of its sender.

    The sender of a message is the node that is eliminated.
    """
    logs = np.log2(np.diff(graph.starts)).tolist()
    work = 0.0
    for node, scope, size in zip(plan.order, plan.scopes, plan.sizes, strict=True):
        work += 2.0 ** (logs[node] + sum(logs[j] for j in scope[:size]))
    return work


def _adjacency(graph: CostGraph) -> list[set[int]]:
    neighbours: list[set[int]] = [set() for _ in range(len(graph.starts) - 1)]
    for i, j in graph.ends.tolist():
        neighbours[i].add(j)
        neighbours[j].add(i)
    return neighbours


def _remove(neighbours: list[set[int]], node: int) -> set[int]:
    """Remove a node and connect its neighbours with each other.

    Returns the neighbours.
    """
    scope = neighbours[node]
    for other in scope:
        neighbours[other] |= scope
        neighbours[other] -= {node, other}
    return scope


def _ordered(
    neighbours: list[set[int]], log_widths: Floats, log_cap: float, noise: Floats
) -> Iterator[tuple[int, set[int]]]:
    """The nodes that are eliminated, in order, each with its remaining neighbours.

    Some of these neighbours may be left out later.
    """
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
            yield node, scope
        gone[node] = True
        for other in scope:
            weights[other] = log_widths[other] + math.fsum(
                log_widths[j] for j in neighbours[other]
            )
            heapq.heappush(heap, (weights[other], other))


@compiled
def optimise(
    graph: CostGraph,
    costs: Floats,
    subset: Ints,
    choices: Ints,
    log_cap: float,
    noise: Floats,
) -> None:
    """Improve the choices of a subset of nodes, in place, by bucket elimination.

    A node keeps its choice if its message would be too large. If no node does, the
    choices of the subset are optimal, given the choices of all other nodes.
    log_cap: base-2 logarithm of the largest allowed work of a message.
    noise: for each position of the subset a number that is added to the logarithm of
        its message's work when the next node is chosen.
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
    order, rank, scopes, sizes = order_nodes(adjacent, logs, log_cap, noise)
    elimination = Elimination(subset, position, order, rank, scopes, sizes)
    optimise_in_order(graph, costs, elimination, choices)


@compiled
def order_nodes(
    adjacent: Bools, logs: Floats, log_cap: float, noise: Floats
) -> tuple[Ints, Ints, Ints, Ints]:
    """The elimination order of a small graph, smallest message first.

    Returns the fields `order`, `rank`, `scopes` and `sizes` of an `Elimination`.

    Nodes whose messages would be too large are left out: they keep their choices.
    adjacent: whether two nodes are neighbours; changed in place.
    logs: base-2 logarithm of each node's number of choices.
    """
    n = len(logs)
    order, rank = np.empty(n, np.int64), np.full(n, n)
    scopes, sizes = np.empty((n, _MAX_SCOPE), np.int64), np.zeros(n, np.int64)
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
            for b in range(n):
                if adjacent[node, b]:
                    scopes[count, sizes[count]] = b
                    sizes[count] += 1
            order[count], rank[node] = node, count
            count += 1
        alive[node] = False
        for b in range(n):
            if adjacent[node, b]:
                adjacent[node, b] = False
                adjacent[b, node] = False
                weight[b] -= logs[node]
                degree[b] -= 1
    drop_nodes_left_out(scopes[:count], sizes, rank)
    return order[:count], rank, scopes[:count], sizes[:count]


@compiled_in_place
def find_smallest_and_largest(
    alive: Bools, weight: Floats, degree: Ints, noise: Floats
) -> tuple[int, int]:
    """The remaining nodes with the smallest message and with the most neighbours.

    The message is the table that eliminating the node would produce.
    """
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
    """Connect all neighbours of an eliminated node with each other, in place.

    The weights (logarithms of message sizes) and degrees of the neighbours are updated.
    """
    n = len(logs)
    for a in range(n):
        if not adjacent[node, a]:
            continue
        for b in range(n):
            if adjacent[node, b] and a != b and not adjacent[a, b]:
                adjacent[a, b] = True
                weight[a] += logs[b]
                degree[a] += 1


@compiled_in_place
def drop_nodes_left_out(scopes: Ints, sizes: Ints, rank: Ints) -> None:
    """Remove from the scopes, in place, the nodes that are never eliminated."""
    for step in range(len(scopes)):
        size = 0
        for p in range(sizes[step]):
            if rank[scopes[step, p]] < len(rank):
                scopes[step, size] = scopes[step, p]
                size += 1
        sizes[step] = size

"""Exact optimisation of some nodes, the others being fixed: bucket elimination.

Nodes go one after the other; each leaves, for every choice of the neighbours it then
has, its best cost (Bertele and Brioschi, Nonserial Dynamic Programming, 1972). Where
that table would be too large, a node keeps its present choice instead. On chains and
trees, and wherever nothing had to be kept, the result is the optimum.
"""

from __future__ import annotations

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.problem.cost_graph import CostGraph
from meshwright.search.compiled import compiled

_SCOPE = 24  # most neighbours of an eliminated node: each has at least two choices


@compiled
def optimise(
    graph: CostGraph,
    costs: Floats,
    subset: Ints,
    choices: Ints,
    log_cap: float,
    noise: Floats,
) -> int:
    """Improve the choices of a subset of the nodes, in place; how many were kept.

    edge_starts, edges: the edges at each node
    log_cap: of the size of a table, to base 2
    noise: for each of the subset, added to its logarithm when the next one is chosen
    """
    starts, ends, edge_starts, edges = (
        graph.starts, graph.ends, graph.edge_starts, graph.edges
    )  # fmt: skip
    n = len(subset)
    local = np.full(len(starts) - 1, -1)
    for a in range(n):
        local[subset[a]] = a
    adjacent = np.zeros((n, n), np.bool_)
    logs = np.empty(n)
    for a in range(n):
        i = subset[a]
        logs[a] = np.log2(starts[i + 1] - starts[i])
        for at in range(edge_starts[i], edge_starts[i + 1]):
            e = edges[at]
            b = local[ends[e, 0] + ends[e, 1] - i]
            if b >= 0:
                adjacent[a, b] = True
    order = order_nodes(adjacent.copy(), logs, log_cap, noise)
    scopes, sizes = find_scopes(adjacent, order)
    rank = np.full(n, n)
    for step in range(len(order)):
        rank[order[step]] = step
    unary = fixed_costs(
        graph, costs, subset, local, rank, choices
    )  # fmt: skip
    picks = np.empty(len(order), np.int64)
    eliminate(
        graph, subset, local, rank, order, scopes, sizes, unary, picks
    )  # fmt: skip
    for step in range(len(order)):
        choices[subset[order[step]]] = picks[step]
    return n - len(order)


@compiled
def order_nodes(  # noqa: C901
    adjacent: Bools, logs: Floats, log_cap: float, noise: Floats
) -> Ints:
    """The nodes in an order of elimination, smallest table first.

    Nodes that are not in the order are those that keep their choice.
    """
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
        best = -1
        largest = -1
        for a in range(n):
            if alive[a]:
                if best < 0 or weight[a] + noise[a] < weight[best] + noise[best]:
                    best = a
                if (
                    largest < 0
                    or degree[a] + noise[a] > degree[largest] + noise[largest]
                ):
                    largest = a
        if weight[best] > log_cap or degree[best] > _SCOPE:
            best = largest
        else:
            for a in range(n):
                if not adjacent[best, a]:
                    continue
                for b in range(n):
                    if adjacent[best, b] and a != b and not adjacent[a, b]:
                        adjacent[a, b] = True
                        weight[a] += logs[b]
                        degree[a] += 1
            order[count] = best
            count += 1
        alive[best] = False
        for b in range(n):
            if adjacent[best, b]:
                adjacent[best, b] = False
                adjacent[b, best] = False
                weight[b] -= logs[best]
                degree[b] -= 1
    return order[:count]


@compiled
def find_scopes(adjacent: Bools, order: Ints) -> tuple[Ints, Ints]:
    """The neighbours that each node of the order has when it goes, and their number."""
    scopes = np.empty((len(order), _SCOPE), np.int64)
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


@compiled
def fixed_costs(
    graph: CostGraph,
    costs: Floats,
    subset: Ints,
    local: Ints,
    rank: Ints,
    choices: Ints,
) -> Floats:
    """Costs of the eliminated nodes' choices, edges to fixed nodes included; padded."""
    starts, ends, edge_starts, edges = (
        graph.starts, graph.ends, graph.edge_starts, graph.edges
    )  # fmt: skip
    table_starts, tables = graph.table_starts, graph.tables
    n = len(subset)
    widest = 0
    for a in range(n):
        widest = max(widest, starts[subset[a] + 1] - starts[subset[a]])
    unary = np.zeros((n, widest))
    for a in range(n):
        i = subset[a]
        width = starts[i + 1] - starts[i]
        for k in range(width):
            unary[a, k] = costs[starts[i] + k]
        for at in range(edge_starts[i], edge_starts[i + 1]):
            e = edges[at]
            j = ends[e, 0] + ends[e, 1] - i
            if local[j] >= 0 and rank[local[j]] < n:
                continue
            first, step = table_starts[e] + choices[j] * width, 1
            if ends[e, 0] == i:
                step = starts[j + 1] - starts[j]
                first = table_starts[e] + choices[j]
            for k in range(width):
                unary[a, k] += tables[first + k * step]
    return unary


@compiled
def eliminate(  # noqa: C901, PLR0913  one pass over all buckets: state is shared
    graph: CostGraph,
    subset: Ints,
    local: Ints,
    rank: Ints,
    order: Ints,
    scopes: Ints,
    sizes: Ints,
    unary: Floats,
    picks: Ints,
) -> None:
    """Set `picks`, in the order of elimination, to the best of all combinations."""
    starts, ends, edge_starts, edges = (
        graph.starts, graph.ends, graph.edge_starts, graph.edges
    )  # fmt: skip
    table_starts, tables = graph.table_starts, graph.tables
    steps = len(order)
    message_starts = np.zeros(steps + 1, np.int64)
    bucket = np.full(steps, steps)  # in which each message is summed
    for s in range(steps):
        size = 1
        for p in range(sizes[s]):
            b = subset[scopes[s, p]]
            size *= starts[b + 1] - starts[b]
            bucket[s] = min(bucket[s], rank[scopes[s, p]])
        message_starts[s + 1] = message_starts[s] + size
    messages = np.empty(message_starts[-1])
    best = np.empty(message_starts[-1], np.int16)
    head = np.full(steps + 1, -1)  # lists of the messages to each bucket
    follow = np.full(steps, -1)
    incoming = np.zeros(steps + 1, np.int64)
    for s in range(steps):
        incoming[bucket[s]] += 1
    scope_at = np.full(len(subset), -1)
    index = np.zeros(scopes.shape[1], np.int64)
    for s in range(steps):
        a = order[s]
        i = subset[a]
        width = starts[i + 1] - starts[i]
        depth = sizes[s]
        for p in range(depth):
            scope_at[scopes[s, p]] = p
        scope_at[a] = depth
        most = edge_starts[i + 1] - edge_starts[i] + incoming[s]
        strides = np.zeros((most, depth + 1), np.int64)
        offsets = np.zeros(most, np.int64)
        is_message = np.zeros(most, np.bool_)
        count = 0
        for at in range(edge_starts[i], edge_starts[i + 1]):
            e = edges[at]
            j = ends[e, 0] + ends[e, 1] - i
            b = local[j]
            if b < 0 or rank[b] == len(subset) or rank[b] < s:
                continue
            offsets[count] = table_starts[e]
            if ends[e, 0] == i:
                strides[count, depth] = starts[j + 1] - starts[j]
                strides[count, scope_at[b]] = 1
            else:
                strides[count, depth] = 1
                strides[count, scope_at[b]] = width
            count += 1
        c = head[s]
        while c >= 0:
            offsets[count] = message_starts[c]
            is_message[count] = True
            step = 1
            for p in range(sizes[c] - 1, -1, -1):
                b = scopes[c, p]
                strides[count, scope_at[b]] = step
                step *= starts[subset[b] + 1] - starts[subset[b]]
            count += 1
            c = follow[c]
        for p in range(depth):
            index[p] = 0
        total = np.empty(width)
        for out in range(message_starts[s], message_starts[s + 1]):
            for k in range(width):
                total[k] = unary[a, k]
            for f in range(count):
                step = strides[f, depth]
                at = offsets[f]
                if is_message[f]:
                    for k in range(width):
                        total[k] += messages[at + k * step]
                else:
                    for k in range(width):
                        total[k] += tables[at + k * step]
            least = 0
            for k in range(1, width):
                if total[k] < total[least]:
                    least = k
            messages[out] = total[least]
            best[out] = least
            for p in range(depth - 1, -1, -1):
                index[p] += 1
                j = subset[scopes[s, p]]
                size = starts[j + 1] - starts[j]
                for f in range(count):
                    offsets[f] += strides[f, p]
                if index[p] < size:
                    break
                for f in range(count):
                    offsets[f] -= size * strides[f, p]
                index[p] = 0
        if depth == 1:
            b = scopes[s, 0]
            for k in range(message_starts[s + 1] - message_starts[s]):
                unary[b, k] += messages[message_starts[s] + k]
        elif depth:
            follow[s] = head[bucket[s]]
            head[bucket[s]] = s
    for s in range(steps - 1, -1, -1):
        at = 0
        for p in range(sizes[s]):
            b = scopes[s, p]
            at = at * (starts[subset[b] + 1] - starts[subset[b]]) + picks[rank[b]]
        picks[s] = best[message_starts[s] + at]

"""Bucket elimination: exact optimisation of some nodes while all others stay fixed.

Nodes are eliminated one by one. An eliminated node sends a message to its remaining
neighbours, its scope: for every combination of their choices, its least cost (Bertele
and Brioschi, Nonserial Dynamic Programming, 1972; Dechter, Artificial Intelligence 113,
1999). Afterwards the optimal choices are read off in reverse order.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.problem.reduced_problem import (
    CostGraph,
    strides_at,
)
from meshwright.search.compiled import compiled, compiled_in_place


class Elimination(NamedTuple):
    """A subset of n nodes, and the order in S steps in which they are eliminated.

    A position is an index into the subset.
    nodes: node of the graph at each position, [n]
    position: position of each node of the graph, -1 if it is not in the subset
    order: positions in order of elimination, [S]; other nodes keep their choice
    rank: step at which each position is eliminated, n if it keeps its choice, [n]
    scopes: positions of the remaining neighbours at each step, padded, [S, W]
    sizes: number of remaining neighbours at each step, [S]
    """

    nodes: Ints
    position: Ints
    order: Ints
    rank: Ints
    scopes: Ints
    sizes: Ints


class MessageTables(NamedTuple):
    """The messages of all S steps of an elimination, stored one after another.

    starts: start of each step's message in `values`, [S + 1]
    target: step that receives each message, S if its scope is empty, [S]
    values: least cost by choices of the remaining neighbours (scope), last one fastest
    best: choice of the eliminated node that attains this cost
    head, following: linked lists of the messages that each step receives, -1 at the end
    """

    starts: Ints
    target: Ints
    values: Floats
    best: NDArray[np.integer[Any]]
    head: Ints
    following: Ints


class Addends(NamedTuple):
    """The tables whose sum one step minimises: edge costs, then messages received.

    offsets: index of each table's entry for the current combination of choices
    strides: distance in each table between consecutive choices of each node of the
        scope, and, last, of the eliminated node, [tables, W + 1]
    is_message: whether each table is in `MessageTables.values`, not in the graph
    """

    offsets: Ints
    strides: Ints
    is_message: Bools


@compiled
def optimise_in_order(
    graph: CostGraph, costs: Floats, elimination: Elimination, choices: Ints
) -> None:
    """Set the choices of the eliminated nodes to an optimal combination, in place.

    All other nodes keep their choices.
    """
    order = elimination.order
    unary = fixed_costs(graph, costs, elimination, choices)
    picks = np.empty(len(order), np.int64)
    eliminate(graph, elimination, unary, picks)
    for step in range(len(order)):
        choices[elimination.nodes[order[step]]] = picks[step]


@compiled
def fixed_costs(
    graph: CostGraph, costs: Floats, elimination: Elimination, choices: Ints
) -> Floats:
    """Cost of each choice of each node, with all its edges to fixed nodes."""
    starts = graph.starts
    nodes, position, rank = elimination.nodes, elimination.position, elimination.rank
    n = len(nodes)
    widest = 0
    for a in range(n):
        widest = max(widest, starts[nodes[a] + 1] - starts[nodes[a]])
    unary = np.zeros((n, widest))
    for a in range(n):
        i = nodes[a]
        width = starts[i + 1] - starts[i]
        for k in range(width):
            unary[a, k] = costs[starts[i] + k]
        for at in range(graph.edge_starts[i], graph.edge_starts[i + 1]):
            e = graph.edges[at]
            step, stride, j = strides_at(graph, e, i)
            if position[j] >= 0 and rank[position[j]] < n:
                continue
            first = graph.table_starts[e] + choices[j] * stride
            for k in range(width):
                unary[a, k] += graph.tables[first + k * step]
    return unary


@compiled
def eliminate(
    graph: CostGraph, elimination: Elimination, unary: Floats, picks: Ints
) -> None:
    """Set `picks[s]` to the optimal choice of the node that step `s` eliminates, [S].

    unary: the result of `fixed_costs`; messages with a scope of one node are added to
    its row.
    """
    messages, num_received = empty_messages(graph, elimination)
    order, sizes = elimination.order, elimination.sizes
    scope_at = np.full(len(elimination.nodes), -1)
    index = np.zeros(elimination.scopes.shape[1], np.int64)
    for s in range(len(order)):
        i = elimination.nodes[order[s]]
        degree = graph.edge_starts[i + 1] - graph.edge_starts[i]
        most = degree + num_received[s]
        addends = Addends(
            np.zeros(most, np.int64),
            np.zeros((most, sizes[s] + 1), np.int64),
            np.zeros(most, np.bool_),
        )
        count = collect_addends(graph, elimination, messages, addends, scope_at, s)
        total = np.empty(graph.starts[i + 1] - graph.starts[i])
        index[: sizes[s]] = 0
        minimise(graph, elimination, messages, addends, unary, (s, count), index, total)
        deliver(elimination, messages, unary, s)
    read_choices(graph, elimination, messages, picks)


@compiled
def empty_messages(
    graph: CostGraph, elimination: Elimination
) -> tuple[MessageTables, Ints]:
    """Unfilled tables for the messages of all steps, and how many each step receives."""
    starts, scopes, sizes = graph.starts, elimination.scopes, elimination.sizes
    steps = len(elimination.order)
    message_starts = np.zeros(steps + 1, np.int64)
    target = np.full(steps, steps)
    num_received = np.zeros(steps + 1, np.int64)
    for s in range(steps):
        size = 1
        for p in range(sizes[s]):
            b = elimination.nodes[scopes[s, p]]
            size *= starts[b + 1] - starts[b]
            target[s] = min(target[s], elimination.rank[scopes[s, p]])
        message_starts[s + 1] = message_starts[s] + size
        num_received[target[s]] += 1
    values = np.empty(message_starts[-1])
    best = np.empty(message_starts[-1], np.int16)
    head, following = np.full(steps + 1, -1), np.full(steps, -1)
    messages = MessageTables(message_starts, target, values, best, head, following)
    return messages, num_received


@compiled_in_place
def collect_addends(
    graph: CostGraph,
    elimination: Elimination,
    messages: MessageTables,
    addends: Addends,
    scope_at: Ints,
    s: int,
) -> int:
    """Find the tables that step `s` sums, by offsets and strides; return their number.

    scope_at: scratch: index of each position among the step's remaining neighbours.
    """
    starts, rank = graph.starts, elimination.rank
    scopes, sizes = elimination.scopes, elimination.sizes
    offsets, strides = addends.offsets, addends.strides
    i = elimination.nodes[elimination.order[s]]
    depth = sizes[s]
    for p in range(depth):
        scope_at[scopes[s, p]] = p
    scope_at[elimination.order[s]] = depth
    count = 0
    for at in range(graph.edge_starts[i], graph.edge_starts[i + 1]):
        e = graph.edges[at]
        stride, other_stride, j = strides_at(graph, e, int(i))
        b = elimination.position[j]
        if b < 0 or rank[b] == len(elimination.nodes) or rank[b] < s:
            continue
        offsets[count] = graph.table_starts[e]
        strides[count, depth] = stride
        strides[count, scope_at[b]] = other_stride
        count += 1
    c = messages.head[s]
    while c >= 0:
        offsets[count] = messages.starts[c]
        addends.is_message[count] = True
        stride = 1
        for p in range(sizes[c] - 1, -1, -1):
            b = scopes[c, p]
            strides[count, scope_at[b]] = stride
            j = elimination.nodes[b]
            stride *= starts[j + 1] - starts[j]
        count += 1
        c = messages.following[c]
    return count


@compiled_in_place
def minimise(  # noqa: C901, PLR0913  the innermost loop, on the caller's arrays
    graph: CostGraph,
    elimination: Elimination,
    messages: MessageTables,
    addends: Addends,
    unary: Floats,
    step: tuple[int, int],
    index: Ints,
    total: Floats,
) -> None:
    """Fill the message of a step: least cost by choices of its remaining neighbours.

    step: number of the step, and number of tables that it sums.
    index, total: scratch: current choices of the neighbours (zero at first), and sums
        over tables.
    """
    s, count = step
    offsets, strides = addends.offsets, addends.strides
    depth, width = elimination.sizes[s], len(total)
    a = elimination.order[s]
    for out in range(messages.starts[s], messages.starts[s + 1]):
        for k in range(width):
            total[k] = unary[a, k]
        for f in range(count):
            stride = strides[f, depth]
            at = offsets[f]
            table = messages.values if addends.is_message[f] else graph.tables
            for k in range(width):
                total[k] += table[at + k * stride]
        least = 0
        for k in range(1, width):
            if total[k] < total[least]:
                least = k
        messages.values[out] = total[least]
        messages.best[out] = least
        for p in range(depth - 1, -1, -1):
            index[p] += 1
            j = elimination.nodes[elimination.scopes[s, p]]
            size = graph.starts[j + 1] - graph.starts[j]
            for f in range(count):
                offsets[f] += strides[f, p]
            if index[p] < size:
                break
            for f in range(count):
                offsets[f] -= size * strides[f, p]
            index[p] = 0


@compiled_in_place
def deliver(
    elimination: Elimination, messages: MessageTables, unary: Floats, s: int
) -> None:
    """Pass a step's message to a later step, or add it to its one neighbour's costs."""
    if elimination.sizes[s] == 1:
        b = elimination.scopes[s, 0]
        first = messages.starts[s]
        for k in range(messages.starts[s + 1] - first):
            unary[b, k] += messages.values[first + k]
    elif elimination.sizes[s]:
        messages.following[s] = messages.head[messages.target[s]]
        messages.head[messages.target[s]] = s


@compiled_in_place
def read_choices(
    graph: CostGraph, elimination: Elimination, messages: MessageTables, picks: Ints
) -> None:
    """Read off the optimal choice of each eliminated node, last step first."""
    nodes, starts = elimination.nodes, graph.starts
    for s in range(len(elimination.order) - 1, -1, -1):
        at = 0
        for p in range(elimination.sizes[s]):
            b = elimination.scopes[s, p]
            width = starts[nodes[b] + 1] - starts[nodes[b]]
            at = at * width + picks[elimination.rank[b]]
        picks[s] = messages.best[messages.starts[s] + at]

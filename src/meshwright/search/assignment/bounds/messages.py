"""Lower bounds in many short steps: what each node tells its neighbours.

Along an order of all nodes, there and back, each tells its later neighbours, for each of
their choices, what its own side then costs at least (sequential tree-reweighted message
passing: Kolmogorov, PAMI 28, 2006). The bound never falls, and is soon near that of the
linear program, where subgradients take tens of times as long. Memory is not counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.problem.cost_graph import CostGraph
from meshwright.search.assignment.problem.reduced_problem import starts_of
from meshwright.search.compiled import compiled_in_place

OPEN = -1
"""Of a node without a choice."""


class MessageArrays(NamedTuple):
    """What has been told so far, in the flat form that the inner loops walk.

    starts: of each edge's messages, those to its first node, then those to its second.
    told: the messages. shares: of what a node has heard that it tells on, at each edge.
    heard, own: room for what one node has heard, and what it says of that along an edge.
    """

    graph: CostGraph
    costs: Floats
    starts: Ints
    told: Floats
    shares: Floats
    heard: Floats
    own: Floats


class Messages:
    """Of a graph whose tables are finite; bound: no choices cost less.

    told: messages to begin with. Any are valid; those of a problem that only costs
    differently are near.
    """

    def __init__(
        self, graph: CostGraph, costs: Floats, told: Floats | None = None
    ) -> None:
        self.graph = graph
        widths = np.diff(graph.starts)
        starts = starts_of(widths[graph.ends].sum(axis=1))
        later = np.bincount(graph.ends.min(axis=1), minlength=len(widths))
        earlier = np.bincount(graph.ends.max(axis=1), minlength=len(widths))
        self.net = MessageArrays(
            graph,
            costs,
            starts,
            told.copy()
            if told is not None and len(told) == starts[-1]
            else np.zeros(starts[-1]),
            1 / np.maximum(np.maximum(later, earlier), 1),
            np.zeros(int(widths.max(initial=1))),
            np.zeros(int(widths.max(initial=1))),
        )
        self.bound = -np.inf

    def sweep(self, times: int) -> float:
        """There and back so many times; the bound."""
        nothing = np.full(len(self.graph.starts) - 1, OPEN)
        for _ in range(times):
            for is_forward in (True, False):
                self.bound = max(self.bound, tell(self.net, nothing, is_forward))
        return self.bound

    def decode(self) -> tuple[Ints, Floats]:
        """Choices made in order by what was heard of later nodes.

        And for each choice of each node by how much more than the bound all choices
        cost at least that it is part of, [sum of widths].
        """
        net = self.net._replace(told=self.net.told.copy())
        choices = np.zeros(len(self.graph.starts) - 1, np.int64)
        excess = np.zeros(len(net.costs))
        choose(net, np.empty(len(net.heard)), choices, excess)
        return choices, excess

    def split(self, edge_ends: Bools) -> Floats:
        """Costs of nodes that become a copy for each edge, beyond an even share of each.

        edge_ends: [E, 2], which ends of edges get a copy. For each of these in order the
        addends of its choices; over the copies of a node they sum to nothing.
        """
        graph = self.graph
        nodes = graph.ends[edge_ends]
        widths = np.diff(graph.starts)
        counts = np.bincount(nodes, minlength=len(widths))
        second = self.net.starts[:-1] + widths[graph.ends[:, 0]]
        first = np.stack([self.net.starts[:-1], second], axis=1)[edge_ends]
        lengths = widths[nodes]
        steps = np.arange(lengths.sum()) - np.repeat(starts_of(lengths)[:-1], lengths)
        at = np.repeat(graph.starts[:-1][nodes], lengths) + steps
        told = self.net.told[np.repeat(first, lengths) + steps]
        heard = np.bincount(at, told, minlength=int(graph.starts[-1]))
        return heard[at] / np.repeat(counts[nodes], lengths) - told


@compiled_in_place
def take_off_least(numbers: Floats, first: int, count: int) -> float:
    """Take the least of so many numbers off all of them; returns it."""
    least = numbers[first]
    for x in range(first + 1, first + count):
        least = min(least, numbers[x])
    for x in range(first, first + count):
        numbers[x] -= least
    return float(least)


@compiled_in_place
def hear(net: MessageArrays, node: int) -> float:
    """Set `heard` to a node's costs and what it was told, less the least, returned."""
    graph, heard = net.graph, net.heard
    start = graph.starts[node]
    width = int(graph.starts[node + 1] - start)
    for x in range(width):
        heard[x] = net.costs[start + x]
    for at in range(graph.edge_starts[node], graph.edge_starts[node + 1]):
        e = graph.edges[at]
        first = net.starts[e]
        if graph.ends[e, 0] != node:
            other = graph.ends[e, 0]
            first += graph.starts[other + 1] - graph.starts[other]
        for x in range(width):
            heard[x] += net.told[first + x]
    return take_off_least(heard, 0, width)


@compiled_in_place
def tell_along(net: MessageArrays, edge: int, node: int) -> float:
    """Renew what a node tells along an edge; the least, which is taken off.

    Rows are cut out first: over an array from 0 on, loops become vector instructions.
    """
    graph, told = net.graph, net.told
    i, j = graph.ends[edge, 0], graph.ends[edge, 1]
    rows = int(graph.starts[i + 1] - graph.starts[i])
    columns = int(graph.starts[j + 1] - graph.starts[j])
    first = int(net.starts[edge])
    second = first + rows
    to_first, to_second = told[first:second], told[second : second + columns]
    table, share = graph.table_starts[edge], net.shares[node]
    if node == i:
        for x in range(rows):
            own = share * net.heard[x] - to_first[x]
            row = graph.tables[table + x * columns : table + (x + 1) * columns]
            for y in range(columns):
                cost = own + row[y]
                to_second[y] = min(to_second[y], cost) if x else cost
        return take_off_least(told, second, columns)
    own_side = net.own[:columns]
    for y in range(columns):
        own_side[y] = share * net.heard[y] - to_second[y]
    for x in range(rows):
        least = np.inf
        row = graph.tables[table + x * columns : table + (x + 1) * columns]
        for y in range(columns):
            least = min(least, own_side[y] + row[y])
        to_first[x] = least
    return take_off_least(told, first, rows)


@compiled_in_place
def tell(net: MessageArrays, chosen: Ints, is_forward: bool) -> float:
    """All nodes in order tell those after them, or in reverse those before; the bound.

    Only those that are open tell and are told.
    """
    graph = net.graph
    num = len(graph.starts) - 1
    bound = 0.0
    for step in range(num):
        i = step if is_forward else num - 1 - step
        if chosen[i] != OPEN:
            continue
        bound += hear(net, i)
        for at in range(graph.edge_starts[i], graph.edge_starts[i + 1]):
            e = int(graph.edges[at])
            other = graph.ends[e, 0] + graph.ends[e, 1] - i
            if (other > i) == is_forward and chosen[other] == OPEN:
                bound += tell_along(net, e, i)
    return bound


@compiled_in_place
def choose(net: MessageArrays, wanted: Floats, choices: Ints, excess: Floats) -> None:
    """Once forward, each node choosing by those before; see `Messages.decode`."""
    graph = net.graph
    for i in range(len(graph.starts) - 1):
        start = graph.starts[i]
        width = graph.starts[i + 1] - start
        hear(net, i)
        for x in range(width):
            excess[start + x] = wanted[x] = net.heard[x]
        for at in range(graph.edge_starts[i], graph.edge_starts[i + 1]):
            e = graph.edges[at]
            a, b = graph.ends[e, 0], graph.ends[e, 1]
            if a + b - i > i:
                continue
            columns = graph.starts[b + 1] - graph.starts[b]
            first, pair, step = net.starts[e], graph.table_starts[e], columns
            if a == i:
                pair += choices[b]
            else:
                first += graph.starts[a + 1] - graph.starts[a]
                pair += choices[a] * columns
                step = 1
            for x in range(width):
                wanted[x] += graph.tables[pair + x * step] - net.told[first + x]
        best = 0
        for x in range(1, width):
            best = x if wanted[x] < wanted[best] else best
        choices[i] = best
        for at in range(graph.edge_starts[i], graph.edge_starts[i + 1]):
            e = int(graph.edges[at])
            if graph.ends[e, 0] + graph.ends[e, 1] - i > i:
                tell_along(net, e, i)

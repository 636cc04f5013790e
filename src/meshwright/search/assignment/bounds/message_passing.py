"""Lower bounds by sequential tree-reweighted message passing (TRW-S).

Kolmogorov, PAMI 28, 2006: in a fixed order of all nodes, forward and backward, each
node sends a message to its later neighbours: for each of their choices, the least cost
on the sender's side. The messages reparametrise the costs: they move cost between nodes
and edges and change no total. The bound never falls. It soon comes near the bound of
the linear relaxation, for which subgradients take tens of times as long. The memory
limit is ignored.
"""

from typing import NamedTuple

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints, ranges, starts_of
from meshwright.search.assignment.problem.reduced_problem import (
    CostGraph,
    strides_at,
)
from meshwright.search.compiled import compiled_in_place

UNASSIGNED = -1
"""Value in an array of choices for a node that has no choice yet."""

MIN_RISE = 2e-4
"""Relative rise of the lower bound in a round below which it counts as converged."""


class MessageArrays(NamedTuple):
    """The present messages of a graph with E edges, and scratch arrays for one node.

    costs: cost of each choice of each node
    starts: start of each edge's messages in `values`, [E + 1]; the messages to its
        first node come first, then those to its second node
    values: messages, one number per choice of the receiver
    weights: share of a node's belief that it sends along each edge (gamma of TRW-S),
        one per node
    belief: scratch: costs of a node's choices plus all messages to it, minus the
        minimum
    outgoing: scratch: sender's part of a message
    """

    graph: CostGraph
    costs: Floats
    starts: Ints
    values: Floats
    weights: Floats
    belief: Floats
    outgoing: Floats


class Messages:
    """Message passing on a graph whose tables are finite.

    bound: lower bound on the cost of every combination of choices.
    values: messages to start from, zero by default. Any values are valid; the final
        messages of a problem that differs only in its costs give a good bound at once.
    """

    def __init__(
        self, graph: CostGraph, costs: Floats, values: Floats | None = None
    ) -> None:
        self.graph = graph
        widths = np.diff(graph.starts)
        starts = starts_of(widths[graph.ends].sum(axis=1))
        later = np.bincount(graph.ends.min(axis=1), minlength=len(widths))
        earlier = np.bincount(graph.ends.max(axis=1), minlength=len(widths))
        self.arrays = MessageArrays(
            graph,
            costs,
            starts,
            values.copy()
            if values is not None and len(values) == starts[-1]
            else np.zeros(starts[-1]),
            1 / np.maximum(np.maximum(later, earlier), 1),
            np.zeros(int(widths.max(initial=1))),
            np.zeros(int(widths.max(initial=1))),
        )
        self.bound = -np.inf

    @property
    def num_entries(self) -> int:
        """Number of entries of all tables, messages and costs, which one pass reads."""
        arrays = self.arrays
        return len(self.graph.tables) + 2 * len(arrays.values) + len(arrays.costs)

    def sweep(self, times: int) -> float:
        """Pass messages forward and backward `times` times; return the lower bound."""
        unassigned = np.full(len(self.graph.starts) - 1, UNASSIGNED)
        for _ in range(times):
            for is_forward in (True, False):
                self.bound = max(
                    self.bound, pass_once(self.arrays, unassigned, is_forward)
                )
        return self.bound

    def decode(self) -> tuple[Ints, Floats]:
        """Choices read off the messages, and the min-marginal excess of every choice.

        The choices come from one greedy forward pass. All solutions that contain a
        choice cost at least the bound plus the choice's excess.
        """
        arrays = self.arrays._replace(values=self.arrays.values.copy())
        choices = np.zeros(len(self.graph.starts) - 1, np.int64)
        excess = np.zeros(len(arrays.costs))
        choose_forward(arrays, np.empty(len(arrays.belief)), choices, excess)
        return choices, excess

    def split(self, edge_ends: Bools) -> Floats:
        """Lagrange multipliers of node copies that give the bound of these messages.

        edge_ends: which ends of edges get a copy of their node, [E, 2].
        Each copy has an equal share of its node's cost. The result has, for each copy
        in order, a number per choice that is added to this share. The numbers of all
        copies of a node sum to zero.
        """
        graph = self.graph
        nodes = graph.ends[edge_ends]
        widths = np.diff(graph.starts)
        counts = np.bincount(nodes, minlength=len(widths))
        second = self.arrays.starts[:-1] + widths[graph.ends[:, 0]]
        first = np.stack([self.arrays.starts[:-1], second], axis=1)[edge_ends]
        lengths = widths[nodes]
        at = ranges(graph.starts[nodes], lengths)
        values = self.arrays.values[ranges(first, lengths)]
        received = np.bincount(at, values, minlength=int(graph.starts[-1]))
        return received[at] / np.repeat(counts[nodes], lengths) - values


@compiled_in_place
def subtract_minimum(numbers: Floats, first: int, count: int) -> float:
    """Subtract the minimum of `count` numbers from each of them, in place; return it.

    The numbers begin at index `first`.
    """
    least = numbers[first]
    for x in range(first + 1, first + count):
        least = min(least, numbers[x])
    for x in range(first, first + count):
        numbers[x] -= least
    return float(least)


@compiled_in_place
def message_start(arrays: MessageArrays, edge: int, node: int) -> int:
    """The offset in `values` of the message to a node along an edge."""
    graph = arrays.graph
    i = graph.ends[edge, 0]
    rows = 0 if node == i else graph.starts[i + 1] - graph.starts[i]
    return int(arrays.starts[edge] + rows)


@compiled_in_place
def update_belief(arrays: MessageArrays, node: int) -> float:
    """Set `belief` for a node: the costs of its choices plus all messages to it.

    The minimum is subtracted from it, and returned.
    """
    graph, belief = arrays.graph, arrays.belief
    start = graph.starts[node]
    width = int(graph.starts[node + 1] - start)
    for x in range(width):
        belief[x] = arrays.costs[start + x]
    for at in range(graph.edge_starts[node], graph.edge_starts[node + 1]):
        e = graph.edges[at]
        first = message_start(arrays, e, node)
        for x in range(width):
            belief[x] += arrays.values[first + x]
    return subtract_minimum(belief, 0, width)


@compiled_in_place
def send_message(arrays: MessageArrays, edge: int, node: int) -> float:
    """Recompute the message of a node along an edge.

    The minimum is subtracted from it, and returned. Slices are taken first, since loops
    over an array from index 0 on are vectorised.
    """
    graph, values = arrays.graph, arrays.values
    i, j = graph.ends[edge, 0], graph.ends[edge, 1]
    rows = int(graph.starts[i + 1] - graph.starts[i])
    columns = int(graph.starts[j + 1] - graph.starts[j])
    first = int(arrays.starts[edge])
    second = first + rows
    to_first, to_second = values[first:second], values[second : second + columns]
    table, weight = graph.table_starts[edge], arrays.weights[node]
    if node == i:
        for x in range(rows):
            outgoing = weight * arrays.belief[x] - to_first[x]
            row = graph.tables[table + x * columns : table + (x + 1) * columns]
            for y in range(columns):
                cost = outgoing + row[y]
                to_second[y] = min(to_second[y], cost) if x else cost
        return subtract_minimum(values, second, columns)
    sent = arrays.outgoing[:columns]
    for y in range(columns):
        sent[y] = weight * arrays.belief[y] - to_second[y]
    for x in range(rows):
        least = np.inf
        row = graph.tables[table + x * columns : table + (x + 1) * columns]
        for y in range(columns):
            least = min(least, sent[y] + row[y])
        to_first[x] = least
    return subtract_minimum(values, first, rows)


@compiled_in_place
def pass_once(arrays: MessageArrays, chosen: Ints, is_forward: bool) -> float:
    """Pass messages once, forward or backward, and return the lower bound.

    Only nodes without a choice in `chosen` send and receive messages.
    """
    graph = arrays.graph
    num = len(graph.starts) - 1
    bound = 0.0
    for step in range(num):
        i = step if is_forward else num - 1 - step
        if chosen[i] != UNASSIGNED:
            continue
        bound += update_belief(arrays, i)
        for at in range(graph.edge_starts[i], graph.edge_starts[i + 1]):
            e = int(graph.edges[at])
            other = graph.ends[e, 0] + graph.ends[e, 1] - i
            if (other > i) == is_forward and chosen[other] == UNASSIGNED:
                bound += send_message(arrays, e, i)
    return bound


@compiled_in_place
def choose_forward(
    arrays: MessageArrays, total: Floats, choices: Ints, excess: Floats
) -> None:
    """Set `choices` and `excess` of `Messages.decode` in one forward pass of messages.

    Each node takes its best choice given the choices of the nodes before it. total:
    scratch array.
    """
    graph = arrays.graph
    for i in range(len(graph.starts) - 1):
        start = graph.starts[i]
        width = graph.starts[i + 1] - start
        update_belief(arrays, i)
        for x in range(width):
            excess[start + x] = total[x] = arrays.belief[x]
        for at in range(graph.edge_starts[i], graph.edge_starts[i + 1]):
            e = graph.edges[at]
            step, stride, other = strides_at(graph, e, i)
            if other > i:
                continue
            first = message_start(arrays, e, i)
            pair = graph.table_starts[e] + choices[other] * stride
            for x in range(width):
                total[x] += graph.tables[pair + x * step] - arrays.values[first + x]
        best = 0
        for x in range(1, width):
            best = x if total[x] < total[best] else best
        choices[i] = best
        for at in range(graph.edge_starts[i], graph.edge_starts[i + 1]):
            e = int(graph.edges[at])
            if graph.ends[e, 0] + graph.ends[e, 1] - i > i:
                send_message(arrays, e, i)

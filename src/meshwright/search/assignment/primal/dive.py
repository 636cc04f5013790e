"""Diving: nodes get their choices in several steps, with message passing in between.

After message passing, several choices of a node often have equal cost. If each node
chose alone among them, choices of neighbours would not match. A dive first assigns the
nodes of largest margin (the cost by which the best choice beats the second best), and
then passes messages among the rest, so that each tie is broken once (decimation:
Mezard, Parisi and Zecchina, Science 297, 2002).
"""

from collections.abc import Callable

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.bounds.message_passing import (
    UNASSIGNED,
    MessageArrays,
    Messages,
    message_start,
    pass_once,
    update_belief,
)
from meshwright.search.assignment.problem.reduced_problem import (
    CostGraph,
    strides_at,
)
from meshwright.search.compiled import compiled_in_place

_RADII = 2, 4, 8
"""Distances in edges from a forbidden pair, used in turn.

Nodes within the distance lose their choices and are assigned again.
"""

_REPAIR_SWEEPS, _REPAIR_STEPS = 10, 60
"""Sweeps of messages around forbidden pairs, and steps to assign the nodes there again."""

_LATE_PARTS = 4
"""Number of steps in which the remaining nodes are assigned once the dive is late."""


def dive(
    messages: Messages, steps: int, penalty: float, is_late: Callable[[float], bool]
) -> Ints:
    """Choices of all nodes, assigned in `steps` parts, nodes of largest margin first.

    The margin of a node is the cost by which its best choice beats the second best.
    Afterwards nodes around forbidden pairs (whose table entry is `penalty`) are
    unassigned and assigned again, as long as this lowers the number of nodes in such
    pairs. Some forbidden pairs may remain.
    messages: result of at least one sweep of message passing.
    is_late: function that says whether to hurry; called before each part with the share
        of the nodes that are unassigned. Parts are larger while it returns true.
    """
    graph = messages.graph
    arrays = messages.arrays._replace(values=messages.arrays.values.copy())
    widths = np.diff(graph.starts)
    chosen = np.where(widths > 1, UNASSIGNED, 0)
    _assign_all(arrays, chosen, -(-_num_unassigned(chosen) // steps), is_late)
    fewest = len(chosen) + 1
    for radius in _RADII:
        region = _in_forbidden_pairs(graph, chosen, penalty)
        if not 0 < region.sum() < fewest or is_late(0.0):
            break
        fewest = int(region.sum())
        for _ in range(radius):
            at_end = region[graph.ends]
            region[graph.ends[at_end.any(axis=1)]] = True
        unassign(arrays, region & (widths > 1), chosen)
        for _ in range(_REPAIR_SWEEPS):
            for is_forward in (True, False):
                pass_once(arrays, chosen, is_forward)
        count = -(-_num_unassigned(chosen) // _REPAIR_STEPS)
        _assign_all(arrays, chosen, count, is_late)
    return chosen


def _num_unassigned(chosen: Ints) -> int:
    return int((chosen == UNASSIGNED).sum())


def _in_forbidden_pairs(graph: CostGraph, choices: Ints, penalty: float) -> Bools:
    """A mask of the nodes whose choice is forbidden with a neighbour's choice."""
    found = np.zeros(len(choices), np.bool_)
    found[graph.ends[graph.tables[graph.pairs(choices)] >= penalty]] = True
    return found


def _assign_all(
    arrays: MessageArrays, chosen: Ints, count: int, is_late: Callable[[float], bool]
) -> None:
    """Give all nodes without a choice one, `count` nodes at a time.

    Messages are passed after each part.
    """
    margins = np.empty(len(chosen))
    while left := _num_unassigned(chosen):
        hurries = is_late(left / len(chosen))
        part = max(count, -(-left // _LATE_PARTS)) if hurries else count
        measure_margins(arrays, chosen, margins)
        surest = np.argsort(-margins, kind="stable")[:part]
        assign(arrays, surest[chosen[surest] == UNASSIGNED], chosen)
        for is_forward in (True, False):
            pass_once(arrays, chosen, is_forward)


@compiled_in_place
def measure_margins(arrays: MessageArrays, chosen: Ints, margins: Floats) -> None:
    """Set each node's margin: its second lowest minus its lowest cost.

    The margin of a node that has a choice already is -1.
    """
    for i in range(len(chosen)):
        margins[i] = -1.0
        if chosen[i] != UNASSIGNED:
            continue
        update_belief(arrays, i)
        width = arrays.graph.starts[i + 1] - arrays.graph.starts[i]
        best, second = np.inf, np.inf
        for x in range(width):
            cost = arrays.belief[x]
            second = min(second, max(cost, best))
            best = min(best, cost)
        margins[i] = second - best


@compiled_in_place
def assign(arrays: MessageArrays, nodes: Ints, chosen: Ints) -> None:
    """Give nodes their best choices one by one, and send messages about each."""
    graph = arrays.graph
    for i in nodes:
        update_belief(arrays, i)
        width = graph.starts[i + 1] - graph.starts[i]
        best = 0
        for x in range(1, width):
            best = x if arrays.belief[x] < arrays.belief[best] else best
        chosen[i] = best
        for at in range(graph.edge_starts[i], graph.edge_starts[i + 1]):
            send_choice(arrays, int(graph.edges[at]), i, best)


@compiled_in_place
def send_choice(arrays: MessageArrays, edge: int, node: int, choice: int) -> None:
    """Set the message of an assigned node along an edge.

    The message is the row or column of the edge's table for the node's choice.
    """
    graph = arrays.graph
    stride, step, other = strides_at(graph, edge, node)
    first = message_start(arrays, edge, other)
    pair = graph.table_starts[edge] + choice * stride
    for x in range(graph.starts[other + 1] - graph.starts[other]):
        arrays.values[first + x] = graph.tables[pair + x * step]


@compiled_in_place
def unassign(arrays: MessageArrays, region: Bools, chosen: Ints) -> None:
    """Take away the choices of the nodes of a region, a mask of nodes.

    Messages to these nodes are set to zero, except messages from assigned neighbours.
    """
    graph = arrays.graph
    for i in range(len(chosen)):
        if region[i]:
            chosen[i] = UNASSIGNED
    for e in range(len(graph.ends)):
        i, j = graph.ends[e, 0], graph.ends[e, 1]
        if not region[i] and not region[j]:
            continue
        for x in range(arrays.starts[e], arrays.starts[e + 1]):
            arrays.values[x] = 0.0
        if not region[i]:
            send_choice(arrays, e, i, int(chosen[i]))
        if not region[j]:
            send_choice(arrays, e, j, int(chosen[j]))

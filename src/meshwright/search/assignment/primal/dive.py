"""Choices made one after the other by what messages say, each told before the next.

Where messages leave several choices level, each node by itself takes any of them, and
those of neighbours do not go together. A dive settles the surest nodes first and passes
messages on among the rest (decimation), so that what is level is decided once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.assignment.bounds.messages import (
    OPEN,
    MessageArrays,
    Messages,
    hear,
    tell,
)
from meshwright.search.assignment.problem.cost_graph import CostGraph
from meshwright.search.compiled import compiled_in_place

_RINGS = 2, 4, 8
"""Neighbours of neighbours of a forbidden pair for which choices are made anew."""

_SWEEPS_ANEW, _STEPS_ANEW = 10, 60
"""Sweeps over these before the first choice, and steps to make them."""

_LATE_PARTS = 4
"""Parts of what is open that is chosen at once where there is no time for more."""


def dive(
    messages: Messages, steps: int, penalty: float, is_late: Callable[[], bool]
) -> Ints:
    """Choices made a part of the nodes at a time, the surest first (decimation).

    messages: swept at least once. After each part what follows of it is told to the
    rest. Where it is late, the parts are larger. Around pairs whose tables say
    `penalty`, choices are made anew, as long as these get fewer; some may be left.
    """
    graph = messages.graph
    net = messages.net._replace(told=messages.net.told.copy())
    widths = np.diff(graph.starts)
    chosen = np.where(widths > 1, OPEN, 0)
    _choose_all(net, chosen, -(-int((chosen == OPEN).sum()) // steps), is_late)
    fewest = len(chosen) + 1
    for rings in _RINGS:
        around = _forbidden(graph, chosen, penalty)
        if not 0 < around.sum() < fewest or is_late():
            break
        fewest = int(around.sum())
        for _ in range(rings):
            at_end = around[graph.ends]
            around[graph.ends[at_end.any(axis=1)]] = True
        open_anew(net, around & (widths > 1), chosen)
        for _ in range(_SWEEPS_ANEW):
            for is_forward in (True, False):
                tell(net, chosen, is_forward)
        count = -(-int((chosen == OPEN).sum()) // _STEPS_ANEW)
        _choose_all(net, chosen, count, is_late)
    return chosen


def _forbidden(graph: CostGraph, choices: Ints, penalty: float) -> Bools:
    """Which nodes are in a pair of choices that costs a penalty."""
    one, two = graph.ends.T
    columns = np.diff(graph.starts)[two]
    pairs = graph.table_starts[:-1] + choices[one] * columns + choices[two]
    found = np.zeros(len(choices), np.bool_)
    found[graph.ends[graph.tables[pairs] >= penalty]] = True
    return found


def _choose_all(
    net: MessageArrays, chosen: Ints, count: int, is_late: Callable[[], bool]
) -> None:
    """Make the choices of all open nodes, so many at a time."""
    margins = np.empty(len(chosen))
    while left := int((chosen == OPEN).sum()):
        part = max(count, -(-left // _LATE_PARTS)) if is_late() else count
        measure(net, chosen, margins)
        surest = np.argsort(-margins, kind="stable")[:part]
        choose_at(net, surest[chosen[surest] == OPEN], chosen)
        for is_forward in (True, False):
            tell(net, chosen, is_forward)


@compiled_in_place
def measure(net: MessageArrays, chosen: Ints, margins: Floats) -> None:
    """By how much the second best choice of each node is worse; -1 where one is made."""
    for i in range(len(chosen)):
        margins[i] = -1.0
        if chosen[i] != OPEN:
            continue
        hear(net, i)
        width = net.graph.starts[i + 1] - net.graph.starts[i]
        best, second = np.inf, np.inf
        for x in range(width):
            heard = net.heard[x]
            second = min(second, max(heard, best))
            best = min(best, heard)
        margins[i] = second - best


@compiled_in_place
def choose_at(net: MessageArrays, nodes: Ints, chosen: Ints) -> None:
    """Make the choices of some nodes, each by those before, and tell the neighbours.

    A node with a choice tells each neighbour what that costs it, from then on.
    """
    graph = net.graph
    for i in nodes:
        hear(net, i)
        width = graph.starts[i + 1] - graph.starts[i]
        best = 0
        for x in range(1, width):
            best = x if net.heard[x] < net.heard[best] else best
        chosen[i] = best
        for at in range(graph.edge_starts[i], graph.edge_starts[i + 1]):
            tell_choice(net, int(graph.edges[at]), i, best)


@compiled_in_place
def tell_choice(net: MessageArrays, edge: int, node: int, choice: int) -> None:
    """What the choice of a node costs its neighbour along an edge."""
    graph = net.graph
    i, j = graph.ends[edge, 0], graph.ends[edge, 1]
    rows = graph.starts[i + 1] - graph.starts[i]
    columns = graph.starts[j + 1] - graph.starts[j]
    first, pair = net.starts[edge], graph.table_starts[edge]
    if node == i:
        first, pair, step, count = first + rows, pair + choice * columns, 1, columns
    else:
        pair, step, count = pair + choice, columns, rows
    for x in range(count):
        net.told[first + x] = graph.tables[pair + x * step]


@compiled_in_place
def open_anew(net: MessageArrays, around: Bools, chosen: Ints) -> None:
    """Take choices back; the neighbours tell theirs again, or nothing."""
    graph = net.graph
    for i in range(len(chosen)):
        if around[i]:
            chosen[i] = OPEN
    for e in range(len(graph.ends)):
        i, j = graph.ends[e, 0], graph.ends[e, 1]
        if not around[i] and not around[j]:
            continue
        for x in range(net.starts[e], net.starts[e + 1]):
            net.told[x] = 0.0
        if not around[i]:
            tell_choice(net, e, i, int(chosen[i]))
        if not around[j]:
            tell_choice(net, e, j, int(chosen[j]))

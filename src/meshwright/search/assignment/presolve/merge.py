"""Presolve: remove choices without support, and merge nodes that follow another node.

Both steps ignore memory. A choice has no support if some neighbour forbids it whatever
the neighbour chooses (arc consistency: Mackworth, Artificial Intelligence 8, 1977). A
node follows a neighbour, its leader, if each choice of the leader allows exactly one
choice of the node; the two become one. In programs most nodes follow another, as an
elementwise op follows its operand, so that tens of thousands of nodes become hundreds.
"""

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints, ranges, starts_of
from meshwright.search.assignment.problem.reduced_problem import (
    ChoiceMaps,
    CostGraph,
    ReducedProblem,
    graph_of,
    strides_at,
)
from meshwright.search.compiled import compiled

_ROUNDS = 100  # each round removes a choice, a pair or a node, or is the last


def merge_followers(
    reduced: ReducedProblem, kept: Bools | None = None
) -> ReducedProblem | None:
    """Simplify a problem: remove choices that no solution can use, and merge nodes.

    A choice is removed if all choices of a neighbour are forbidden beside it. A node is
    merged into another one, its leader, whose choice determines its own. `None` if a
    node has no choice left, so that the problem is infeasible. kept: mask of choices to
    keep; by default all whose cost is finite.
    """
    mask = reduced.costs < np.inf if kept is None else kept.copy()
    for _ in range(_ROUNDS):
        graph = reduced.graph
        before = graph.starts[-1], len(graph.tables)
        while drop_unsupported(graph, mask):
            pass
        num_kept = np.add.reduceat(mask.astype(np.int64), graph.starts[:-1])
        if not num_kept.all():
            return None
        reduced = _shrunk(reduced, mask, num_kept)
        if before == (reduced.graph.starts[-1], len(reduced.graph.tables)):
            break
        mask = reduced.costs < np.inf
    return reduced


def _shrunk(reduced: ReducedProblem, kept: Bools, num_kept: Ints) -> ReducedProblem:
    """The problem after one round: choices removed, nodes merged with their leaders.

    The costs of a node with one choice are added to the costs of its neighbours.
    kept: mask of choices to keep.
    num_kept: number of kept choices of each node.
    """
    lead, by = find_leaders(reduced.graph, kept, num_kept)
    is_root = lead < 0
    root = np.where(is_root, np.arange(len(lead)), lead)
    while not is_root[root].all():
        root = root[root]
    owner = (np.cumsum(is_root) - 1)[root]
    widths = num_kept[is_root]
    pick_starts = starts_of(widths[owner])
    picks = ChoiceMaps(owner, pick_starts, np.zeros(pick_starts[-1], np.int64))
    compose_picks(reduced.graph, kept, lead, by, picks)
    return _rebuilt(reduced, starts_of(widths), picks)


def _rebuilt(
    reduced: ReducedProblem, starts: Ints, picks: ChoiceMaps
) -> ReducedProblem:
    """The problem over merged nodes, with the costs of the old ones summed.

    starts: offsets of the merged nodes' choices.
    picks: for each old node the merged node that represents it, and the old choice
        under each choice of that node.
    """
    widths, old = np.diff(starts), reduced.graph
    one, two = picks.owner[old.ends].T
    first, second = np.minimum(one, two), np.maximum(one, two)
    stays = (first != second) & (widths[first] > 1) & (widths[second] > 1)
    keys, slot_of = np.unique(
        first[stays] * len(widths) + second[stays], return_inverse=True
    )
    slots = np.full(len(one), -1)
    slots[stays] = slot_of.ravel()
    ends = np.stack([keys // len(widths), keys % len(widths)], axis=1)
    table_starts = starts_of(widths[ends[:, 0]] * widths[ends[:, 1]])
    costs = np.zeros(starts[-1])
    new = graph_of(starts, ends, table_starts, np.zeros(table_starts[-1]))
    add_costs(old, reduced.costs, picks, starts, costs)
    add_tables(old, picks, slots, new, costs)
    return ReducedProblem(new, costs, compose_maps(reduced.maps, picks))


@compiled
def drop_unsupported(graph: CostGraph, kept: Bools) -> bool:
    """Remove from `kept` the choices that a neighbour forbids whatever it chooses.

    Returns whether any choice was removed.
    """
    changed = False
    for step in range(2 * len(graph.ends)):
        e = min(step, 2 * len(graph.ends) - 1 - step)  # forward, then backward
        i, j = graph.ends[e, 0], graph.ends[e, 1]
        start_i, start_j = graph.starts[i], graph.starts[j]
        width = graph.starts[j + 1] - start_j
        found = np.zeros(width, np.bool_)
        for k in range(graph.starts[i + 1] - start_i):
            if not kept[start_i + k]:
                continue
            row = graph.table_starts[e] + k * width
            is_supported = False
            for m in range(width):
                if kept[start_j + m] and graph.tables[row + m] < np.inf:
                    is_supported = True
                    found[m] = True
            if not is_supported:
                kept[start_i + k] = False
                changed = True
        for m in range(width):
            if kept[start_j + m] and not found[m]:
                kept[start_j + m] = False
                changed = True
    return changed


@compiled
def who_follows(graph: CostGraph, kept: Bools, edge: int) -> tuple[bool, bool]:
    """Whether the second node of an edge follows the first, and the first the second.

    A node follows the other if each choice of the other allows exactly one of its own.
    """
    i, j = graph.ends[edge, 0], graph.ends[edge, 1]
    start_i, start_j = graph.starts[i], graph.starts[j]
    width = graph.starts[j + 1] - start_j
    columns = np.zeros(width, np.int64)
    second_follows = True
    for k in range(graph.starts[i + 1] - start_i):
        if not kept[start_i + k]:
            continue
        row = graph.table_starts[edge] + k * width
        count = 0
        for m in range(width):
            if kept[start_j + m] and graph.tables[row + m] < np.inf:
                count += 1
                columns[m] += 1
        second_follows = second_follows and count == 1
    first_follows = True
    for m in range(width):
        if kept[start_j + m] and columns[m] != 1:
            first_follows = False
    return second_follows, first_follows


@compiled
def find_leaders(graph: CostGraph, kept: Bools, num_kept: Ints) -> tuple[Ints, Ints]:
    """The leader of each node (-1: none), and the edge to it; leaders form no cycle.

    The choice of a leader determines the choice of the node.
    """
    lead = np.full(len(num_kept), -1)
    by = np.full(len(num_kept), -1)
    top = np.arange(len(num_kept))
    for e in range(len(graph.ends)):
        i, j = graph.ends[e, 0], graph.ends[e, 1]
        if num_kept[i] == 1 or num_kept[j] == 1 or i == j:
            continue
        j_follows, i_follows = who_follows(graph, kept, e)
        for is_first in (True, False):
            follower, leader = (j, i) if is_first else (i, j)
            if (j_follows if is_first else i_follows) and lead[follower] < 0:
                r = leader
                while top[r] != r:
                    top[r] = top[top[r]]
                    r = top[r]
                if r != follower:
                    lead[follower] = leader
                    by[follower] = e
                    top[follower] = r
                    break
    return lead, by


@compiled
def compose_picks(
    graph: CostGraph, kept: Bools, lead: Ints, by: Ints, picks: ChoiceMaps
) -> None:
    """Set each node's choice under each kept choice of its root, leaders first.

    The root of a node is its leader's leader and so on, to a node without a leader.
    """
    done = np.zeros(len(lead), np.bool_)
    stack = np.empty(len(lead), np.int64)
    for i in range(len(lead)):
        depth = 0
        node = i
        while not done[node]:
            done[node] = True
            stack[depth] = node
            depth += 1
            if lead[node] < 0:
                break
            node = lead[node]
        for d in range(depth - 1, -1, -1):
            node = int(stack[d])
            set_picks(graph, kept, node, int(lead[node]), int(by[node]), picks)


@compiled
def set_picks(
    graph: CostGraph, kept: Bools, node: int, leader: int, edge: int, picks: ChoiceMaps
) -> None:
    """Set the choice of a node under each choice of its root, given its leader's.

    A node's leader is the neighbour that determines its choice. The root is the last of
    the chain of leaders; its own choices are its kept choices.
    """
    start = graph.starts[node]
    width = graph.starts[node + 1] - start
    at = picks.starts[node]
    if leader < 0:
        for k in range(width):
            if kept[start + k]:
                picks.picks[at] = k
                at += 1
        return
    stride_k, stride_m, _ = strides_at(graph, edge, node)
    for c in range(picks.starts[node + 1] - at):
        chosen = picks.picks[picks.starts[leader] + c]
        for k in range(width):
            pair = graph.table_starts[edge] + chosen * stride_m + k * stride_k
            if kept[start + k] and graph.tables[pair] < np.inf:
                picks.picks[at + c] = k


@compiled
def add_costs(
    old: CostGraph, old_costs: Floats, picks: ChoiceMaps, starts: Ints, costs: Floats
) -> None:
    """Add the costs of old nodes to the costs of the merged nodes, in place."""
    for i in range(len(picks.owner)):
        at = picks.starts[i]
        for c in range(picks.starts[i + 1] - at):
            cost = old_costs[old.starts[i] + picks.picks[at + c]]
            costs[starts[picks.owner[i]] + c] += cost


@compiled
def add_tables(
    old: CostGraph, picks: ChoiceMaps, slots: Ints, new: CostGraph, costs: Floats
) -> None:
    """Add the edge tables of the old graph to those of the new one, in place.

    slots: new edge of each old edge. If it is -1, the old edge joins nodes that are
        merged or have one choice, and its costs are added to the costs of a node.
    """
    for e in range(len(old.ends)):
        i, j = old.ends[e, 0], old.ends[e, 1]
        width = old.starts[j + 1] - old.starts[j]
        a, b = picks.owner[i], picks.owner[j]
        start_a, start_b = new.starts[a], new.starts[b]
        size_a, size_b = new.starts[a + 1] - start_a, new.starts[b + 1] - start_b
        for ca in range(size_a):
            row = old.table_starts[e] + picks.picks[picks.starts[i] + ca] * width
            for cb in range(size_b):
                cost = old.tables[row + picks.picks[picks.starts[j] + cb]]
                if a == b:
                    if ca == cb:
                        costs[start_a + ca] += cost
                elif slots[e] < 0:
                    costs[start_b + cb if size_a == 1 else start_a + ca] += cost
                elif a < b:
                    new.tables[new.table_starts[slots[e]] + ca * size_b + cb] += cost
                else:
                    new.tables[new.table_starts[slots[e]] + cb * size_a + ca] += cost


def compose_maps(first: ChoiceMaps, then: ChoiceMaps) -> ChoiceMaps:
    """The composition of two maps of merged nodes, from the oldest to the newest."""
    owner = then.owner[first.owner]
    sizes = np.diff(then.starts)[first.owner]
    chosen = then.picks[ranges(then.starts[first.owner], sizes)]
    picks = first.picks[np.repeat(first.starts[:-1], sizes) + chosen]
    return ChoiceMaps(owner, starts_of(sizes), picks)

"""Presolve that memory cannot spoil: choices without partners go, followers merge.

A node follows another if each of the other's choices leaves it exactly one: then the
two are one node. In programs most nodes follow (an elementwise op its operand), so tens
of thousands of nodes become hundreds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshwright.search.assignment.compiled import Bools, Floats, Ints, compiled
from meshwright.search.assignment.kernel import Kernel, all_kept, starts_of

_ROUNDS = 100  # a round that changes anything at least removes a choice or a node


def merge_followers(kernel: Kernel, kept: Bools | None = None) -> Kernel | None:
    """The kernel without impossible choices and followers; None if nothing is possible.

    kept: which choices to keep, all that are not forbidden by default.
    """
    mask = all_kept(kernel) if kept is None else kept.copy()
    for _ in range(_ROUNDS):
        before = kernel.num_nodes, kernel.starts[-1], len(kernel.tables)
        if not keep_supported(
            kernel.starts, kernel.ends, kernel.table_starts, kernel.tables, mask
        ):
            return None
        kernel = _shrink(kernel, mask)
        if before == (kernel.num_nodes, kernel.starts[-1], len(kernel.tables)):
            break
        mask = all_kept(kernel)
    return kernel


def _shrink(kernel: Kernel, kept: Bools) -> Kernel:
    """One round: drop choices, fold nodes with one choice, merge followers."""
    starts, ends = kernel.starts, kernel.ends
    num_kept = np.add.reduceat(kept.astype(np.int64), starts[:-1])
    lead, by = find_leaders(
        starts, ends, kernel.table_starts, kernel.tables, kept, num_kept
    )
    root = find_roots(lead)
    is_root = lead < 0
    index = np.cumsum(is_root) - 1
    owner = index[root]
    widths = num_kept[is_root]
    pick_starts = starts_of(widths[owner])
    picks = compose_picks(
        starts, ends, kernel.table_starts, kernel.tables, kept, lead, by, pick_starts
    )
    return _rebuilt(kernel, owner, starts_of(widths), pick_starts, picks)


def _rebuilt(
    kernel: Kernel, owner: Ints, starts: Ints, pick_starts: Ints, picks: Ints
) -> Kernel:
    """The kernel over new nodes, where old node i picks by its owner's choice."""
    widths = np.diff(starts)
    one, two = owner[kernel.ends[:, 0]], owner[kernel.ends[:, 1]]
    first, second = np.minimum(one, two), np.maximum(one, two)
    stays = (first != second) & (widths[first] > 1) & (widths[second] > 1)
    keys, slot_of = np.unique(
        first[stays] * len(widths) + second[stays], return_inverse=True
    )
    slots = np.full(len(one), -1)
    slots[stays] = slot_of.ravel()
    ends = np.stack([keys // len(widths), keys % len(widths)], axis=1)
    table_starts = starts_of(widths[ends[:, 0]] * widths[ends[:, 1]])
    costs, tables = np.zeros(starts[-1]), np.zeros(table_starts[-1])
    old = kernel.starts, kernel.costs, kernel.ends, kernel.table_starts, kernel.tables
    add_costs(*old[:2], owner, starts, pick_starts, picks, costs)
    add_tables(
        *(kernel.starts, *old[2:]), owner, starts, pick_starts, picks,
        slots, table_starts, costs, tables,
    )  # fmt: skip
    new_owner = owner[kernel.owner]
    new_starts = starts_of(widths[new_owner])
    new_picks = follow_picks(
        kernel.owner, kernel.pick_starts, kernel.picks, pick_starts, picks, new_starts
    )
    return Kernel(
        starts, costs, ends, table_starts, tables, new_owner, new_starts, new_picks
    )


def restricted(kernel: Kernel, tables: Floats) -> Kernel:
    """The kernel with other tables of the same shape."""
    return replace(kernel, tables=tables)


@compiled
def keep_supported(
    starts: Ints, ends: Ints, table_starts: Ints, tables: Floats, kept: Bools
) -> bool:
    """Drop from `kept` what some neighbour forbids; whether every node keeps any."""
    changed = True
    forward = True
    while changed:
        changed = False
        for step in range(len(ends)):
            e = step if forward else len(ends) - 1 - step
            i, j = ends[e]
            width = starts[j + 1] - starts[j]
            found = np.zeros(width, np.bool_)
            for k in range(starts[i + 1] - starts[i]):
                if not kept[starts[i] + k]:
                    continue
                row = table_starts[e] + k * width
                any_found = False
                for m in range(width):
                    if kept[starts[j] + m] and tables[row + m] < np.inf:
                        any_found = True
                        found[m] = True
                if not any_found:
                    kept[starts[i] + k] = False
                    changed = True
            for m in range(width):
                if kept[starts[j] + m] and not found[m]:
                    kept[starts[j] + m] = False
                    changed = True
        forward = not forward
    for i in range(len(starts) - 1):
        if not kept[starts[i] : starts[i + 1]].any():
            return False
    return True


@compiled
def find_leaders(
    starts: Ints,
    ends: Ints,
    table_starts: Ints,
    tables: Floats,
    kept: Bools,
    num_kept: Ints,
) -> tuple[Ints, Ints]:
    """Whom each node follows (-1: nobody) and by which edge; never in a circle."""
    lead = np.full(len(num_kept), -1)
    by = np.full(len(num_kept), -1)
    top = np.arange(len(num_kept))
    for e in range(len(ends)):
        i, j = ends[e]
        if num_kept[i] == 1 or num_kept[j] == 1:
            continue
        width = starts[j + 1] - starts[j]
        columns = np.zeros(width, np.int64)
        j_follows = True
        for k in range(starts[i + 1] - starts[i]):
            if not kept[starts[i] + k]:
                continue
            row = table_starts[e] + k * width
            count = 0
            for m in range(width):
                if kept[starts[j] + m] and tables[row + m] < np.inf:
                    count += 1
                    columns[m] += 1
            j_follows = j_follows and count == 1
        i_follows = True
        for m in range(width):
            if kept[starts[j] + m] and columns[m] != 1:
                i_follows = False
        for follower, leader, follows in ((j, i, j_follows), (i, j, i_follows)):
            if follows and lead[follower] < 0:
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
def find_roots(lead: Ints) -> Ints:
    """The end of each node's chain of leaders."""
    root = np.full(len(lead), -1)
    stack = np.empty(len(lead), np.int64)
    for i in range(len(lead)):
        depth = 0
        node = i
        while root[node] < 0 and lead[node] >= 0:
            stack[depth] = node
            depth += 1
            node = lead[node]
        found = node if lead[node] < 0 else root[node]
        root[node] = found
        for d in range(depth):
            root[stack[d]] = found
    return root


@compiled
def compose_picks(
    starts: Ints,
    ends: Ints,
    table_starts: Ints,
    tables: Floats,
    kept: Bools,
    lead: Ints,
    by: Ints,
    pick_starts: Ints,
) -> Ints:
    """Each node's choice under each kept choice of its root."""
    picks = np.zeros(pick_starts[-1], np.int64)
    done = np.zeros(len(lead), np.bool_)
    stack = np.empty(len(lead), np.int64)
    for i in range(len(lead)):
        depth = 0
        node = i
        while not done[node]:
            stack[depth] = node
            depth += 1
            if lead[node] < 0:
                break
            node = lead[node]
        for d in range(depth - 1, -1, -1):
            node = stack[d]
            done[node] = True
            at = pick_starts[node]
            if lead[node] < 0:
                for k in range(starts[node + 1] - starts[node]):
                    if kept[starts[node] + k]:
                        picks[at] = k
                        at += 1
                continue
            e = by[node]
            leader = lead[node]
            width = starts[ends[e, 1] + 1] - starts[ends[e, 1]]
            for c in range(pick_starts[node + 1] - at):
                chosen = picks[pick_starts[leader] + c]
                for k in range(starts[node + 1] - starts[node]):
                    pair = chosen * width + k
                    if ends[e, 0] == node:
                        pair = k * width + chosen
                    if (
                        kept[starts[node] + k]
                        and tables[table_starts[e] + pair] < np.inf
                    ):
                        picks[at + c] = k
                        break
    return picks


@compiled
def add_costs(
    old_starts: Ints,
    old_costs: Floats,
    owner: Ints,
    starts: Ints,
    pick_starts: Ints,
    picks: Ints,
    costs: Floats,
) -> None:
    """Sum the costs of old nodes into those of their owners."""
    for i in range(len(owner)):
        for c in range(pick_starts[i + 1] - pick_starts[i]):
            cost = old_costs[old_starts[i] + picks[pick_starts[i] + c]]
            costs[starts[owner[i]] + c] += cost


@compiled
def add_tables(
    old_starts: Ints,
    old_ends: Ints,
    old_table_starts: Ints,
    old_tables: Floats,
    owner: Ints,
    starts: Ints,
    pick_starts: Ints,
    picks: Ints,
    slots: Ints,
    table_starts: Ints,
    costs: Floats,
    tables: Floats,
) -> None:
    """Sum old tables into new ones, or, without a slot, into the costs of a node."""
    for e in range(len(old_ends)):
        i, j = old_ends[e]
        width = old_starts[j + 1] - old_starts[j]
        old = old_tables[old_table_starts[e] : old_table_starts[e + 1]]
        a, b = owner[i], owner[j]
        size_a, size_b = starts[a + 1] - starts[a], starts[b + 1] - starts[b]
        for ca in range(size_a):
            row = picks[pick_starts[i] + ca] * width
            if a == b:
                costs[starts[a] + ca] += old[row + picks[pick_starts[j] + ca]]
                continue
            for cb in range(size_b):
                cost = old[row + picks[pick_starts[j] + cb]]
                if slots[e] < 0:
                    at = starts[b] + cb if size_a == 1 else starts[a] + ca
                    costs[at] += cost
                elif a < b:
                    tables[table_starts[slots[e]] + ca * size_b + cb] += cost
                else:
                    tables[table_starts[slots[e]] + cb * size_a + ca] += cost


@compiled
def follow_picks(
    owner: Ints,
    pick_starts: Ints,
    picks: Ints,
    next_starts: Ints,
    next_picks: Ints,
    new_starts: Ints,
) -> Ints:
    """Picks of the original nodes by picks of their owners."""
    out = np.empty(new_starts[-1], np.int64)
    for v in range(len(owner)):
        for c in range(new_starts[v + 1] - new_starts[v]):
            chosen = next_picks[next_starts[owner[v]] + c]
            out[new_starts[v] + c] = picks[pick_starts[v] + chosen]
    return out

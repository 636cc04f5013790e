"""Domains of chips by op, and propagation of the constraints, compiled.

A domain is a set of chips as bits of an integer. Three rules shrink domains until nothing
changes:

- flow: an op's chips are not below the lowest of its sources, nor above the highest of
  its targets;
- skips: an op between the ends of an edge is on the chip of one of them (`skips.py`);
- chips that meet: once both ends of an edge are fixed, their chips are joined. From then
  on no edge may join two chips if that would lie beside a longer path of chips.

Holes need no rule: closing a hole renumbers chips in order, which keeps the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.planner.chips.constraints.network import Network
from meshwright.search.arrays import Bools, Ints
from meshwright.search.compiled import compiled_in_place

TRAIL, HEAD, QUEUED, CHANGED = range(4)
"""Places in `Domains.scalars`: length of the trail, start and length of the queue, and
chips for which `refresh` has changed what they may be joined with."""


class Domains(NamedTuple):
    """The state of the solver: domains, a trail to undo changes, a queue, met chips.

    domain: [N]. trail: op and former domain of each change. joined: [C], chips that each
    chip has an edge to. onward, backward: [C], chips at the other end of an edge that are
    allowed, its own included. queue: ring of N ops.
    """

    scalars: Ints
    domain: Ints
    trail_op: Ints
    trail_domain: Ints
    joined: Ints
    reach: Ints
    far: Ints
    onward: Ints
    backward: Ints
    queue: Ints
    is_queued: Bools


def new_domains(num_ops: int, num_chips: int) -> Domains:
    """Domains with every chip, before the first propagation."""
    every = (1 << num_chips) - 1
    chips = np.zeros(num_chips, np.int64)
    onward = np.array([every & ~((1 << c) - 1) for c in range(num_chips)], np.int64)
    backward = np.array([(2 << c) - 1 for c in range(num_chips)], np.int64)
    room = num_ops * num_chips + 1
    return Domains(
        np.zeros(4, np.int64),
        np.full(num_ops, every, np.int64),
        np.zeros(room, np.int64),
        np.zeros(room, np.int64),
        chips,
        chips.copy(),
        chips.copy(),
        onward,
        backward,
        np.zeros(num_ops, np.int64),
        np.zeros(num_ops, np.bool_),
    )


@compiled_in_place
def position(bit: int) -> int:
    """The number of a single bit."""
    place = 0
    while bit > 1:
        bit >>= 1
        place += 1
    return place


@compiled_in_place
def shrink(d: Domains, op: int, kept: int) -> bool:
    """Intersect a domain with `kept`; false if nothing is left."""
    old = d.domain[op]
    new = old & kept
    if new == old:
        return True
    trail = d.scalars[TRAIL]
    d.trail_op[trail] = op
    d.trail_domain[trail] = old
    d.scalars[TRAIL] = trail + 1
    d.domain[op] = new
    push(d, op)
    return new != 0


@compiled_in_place
def push(d: Domains, op: int) -> None:
    """Queue an op whose surroundings have to be looked at again."""
    if not d.is_queued[op]:
        d.is_queued[op] = True
        n = len(d.queue)
        d.queue[(d.scalars[HEAD] + d.scalars[QUEUED]) % n] = op
        d.scalars[QUEUED] += 1


@compiled_in_place
def propagate(g: Network, d: Domains) -> bool:
    """Shrink domains until nothing changes; false if one is empty."""
    n = len(d.queue)
    while d.scalars[QUEUED]:
        op = int(d.queue[d.scalars[HEAD]])
        d.scalars[HEAD] = (d.scalars[HEAD] + 1) % n
        d.scalars[QUEUED] -= 1
        d.is_queued[op] = False
        if not (_flow(g, d, op) and _meet(g, d, op) and _skip(g, d, op)):
            while d.scalars[QUEUED]:
                d.is_queued[d.queue[d.scalars[HEAD]]] = False
                d.scalars[HEAD] = (d.scalars[HEAD] + 1) % n
                d.scalars[QUEUED] -= 1
            return False
    return True


@compiled_in_place
def _flow(g: Network, d: Domains, op: int) -> bool:
    """Shrink the domains of an op's sources and targets."""
    domain = d.domain[op]
    low = domain & -domain
    if domain == low:
        chip = position(domain)
        ahead, behind = d.onward[chip], d.backward[chip]
    else:
        high = domain
        for shift in (1, 2, 4, 8, 16, 32):
            high |= high >> shift
        ahead, behind = ~(low - 1), high
    for e in range(g.next_at[op], g.next_at[op + 1]):
        if not shrink(d, g.nexts[e], ahead):
            return False
    for e in range(g.prior_at[op], g.prior_at[op + 1]):
        if not shrink(d, g.priors[e], behind):
            return False
    return True


@compiled_in_place
def _meet(g: Network, d: Domains, op: int) -> bool:
    """Join the chip of a fixed op with those of its fixed sources and targets."""
    if d.domain[op] & (d.domain[op] - 1):
        return True
    chip, is_new = position(d.domain[op]), False
    for e in range(g.next_at[op], g.next_at[op + 1]):
        other = int(d.domain[g.nexts[e]])
        is_new |= other & (other - 1) == 0 and _join(d, chip, position(other))
    for e in range(g.prior_at[op], g.prior_at[op + 1]):
        other = int(d.domain[g.priors[e]])
        is_new |= other & (other - 1) == 0 and _join(d, position(other), chip)
    if not is_new:
        return True
    if not refresh(d):
        return False
    for other in range(len(d.queue)):
        domain = d.domain[other]
        is_changed = domain & d.scalars[CHANGED] and domain & (domain - 1) == 0
        if is_changed and not _flow(g, d, other):
            return False
    return True


@compiled_in_place
def _join(d: Domains, low: int, high: int) -> bool:
    """Note an edge between two chips; false if it was known, or joins no two chips."""
    if low == high or d.joined[low] >> high & 1:
        return False
    d.joined[low] |= 1 << high
    return True


@compiled_in_place
def refresh(d: Domains) -> bool:
    """Allowed pairs of chips, from those that are joined; false if some break the rule.

    reach: chips at the end of a path. far: chips at the end of one of two edges or more.
    """
    chips = len(d.joined)
    for a in range(chips - 1, -1, -1):
        d.reach[a] = d.joined[a]
        d.far[a] = 0
        for b in range(a + 1, chips):
            if d.joined[a] >> b & 1:
                d.far[a] |= d.reach[b]
        d.reach[a] |= d.far[a]
        if d.joined[a] & d.far[a]:
            return False
    d.scalars[CHANGED] = 0
    for a in range(chips):
        for b in range(a + 1, chips):
            may_join = d.joined[a] >> b & 1 or _may_join(d, a, b)
            if may_join != d.onward[a] >> b & 1:
                d.onward[a] ^= 1 << b
                d.backward[b] ^= 1 << a
                d.scalars[CHANGED] |= 1 << a | 1 << b
    return True


@compiled_in_place
def _may_join(d: Domains, a: int, b: int) -> bool:
    """Whether an edge from chip a to chip b would leave every edge the longest path."""
    if d.far[a] >> b & 1:
        return False
    beyond = d.reach[b] | 1 << b
    if d.joined[a] & d.reach[b]:
        return False
    broken = 0
    for x in range(a):
        if d.reach[x] >> a & 1:
            broken |= d.joined[x] & beyond
    return broken == 0


@compiled_in_place
def _skip(g: Network, d: Domains, op: int) -> bool:
    """Shrink the domains of the skips that an op takes part in."""
    for e in range(g.end_at[op], g.end_at[op + 1]):
        skip = g.end_skips[e]
        for i in range(g.between_at[skip], g.between_at[skip + 1]):
            if not _between(g, d, skip, g.between[i]):
                return False
    for e in range(g.inner_at[op], g.inner_at[op + 1]):
        if not _between(g, d, g.inner_skips[e], op):
            return False
    return True


@compiled_in_place
def _between(g: Network, d: Domains, skip: int, op: int) -> bool:
    """An op between the ends of a skip is on the chip of one end."""
    first, last = g.ends[skip, 0], g.ends[skip, 1]
    if not shrink(d, op, int(d.domain[first] | d.domain[last])):
        return False
    if d.domain[op] & d.domain[first] == 0:
        both = d.domain[op] & d.domain[last]
        return shrink(d, op, both) and shrink(d, last, both)
    if d.domain[op] & d.domain[last] == 0:
        both = d.domain[op] & d.domain[first]
        return shrink(d, op, both) and shrink(d, first, both)
    return True

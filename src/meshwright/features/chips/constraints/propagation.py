"""Propagation of the chip constraints over domains, as compiled functions.

The domain of an op is the set of chips on which it may still be placed, as bits of an
integer. Three rules shrink domains until nothing changes:

- flow: an op's chips are not below the lowest chip of its sources, nor above the
  highest chip of its targets;
- skips: if other paths lead around an edge, each op on them is on the chip of one of
  the edge's ends (`skip_edges.py`);
- joined chips: once both ends of an edge are fixed, their chips are joined. From then
  on no edge may join two chips between which a longer path of chips would lead.

Unused chips need no rule: renumbering the chips in use, in order, breaks no constraint.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.features.chips.constraints.network import Network
from meshwright.search.arrays import Bools, Ints
from meshwright.search.compiled import compiled_in_place

TRAIL, HEAD, QUEUED, CHANGED = range(4)
"""Indices into `Domains.scalars`: length of the trail, start and length of the queue.

The last entry is the set of chips whose allowed edges the latest `refresh` changed."""


class Domains(NamedTuple):
    """The state of the constraint solver: domains, queue, and a trail to undo changes.

    domain: set of chips that each op may still have, as bits, [N].
    trail_op, trail_domain: op and former domain of each change.
    joined: for each chip the set of chips to which an edge leads from it, [C].
    reach, far: for each chip the chips at the end of a path, and of a path of two or
        more edges, [C].
    onward, backward: for each chip the chips, itself included, to which an edge may
        lead from it, and from which one may lead to it, [C].
    queue: ring buffer of N ops whose neighbours have to be looked at again.
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
    """Domains in which every op may be on every chip."""
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
    """The index of the only bit that is set in an integer."""
    place = 0
    while bit > 1:
        bit >>= 1
        place += 1
    return place


@compiled_in_place
def shrink(d: Domains, op: int, kept: int) -> bool:
    """Remove all chips but those in `kept` from an op's domain; false if none is left.

    The change is recorded on the trail, and the op is queued.
    """
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
    """Queue an op whose neighbours' domains have to be looked at again."""
    if not d.is_queued[op]:
        d.is_queued[op] = True
        n = len(d.queue)
        d.queue[(d.scalars[HEAD] + d.scalars[QUEUED]) % n] = op
        d.scalars[QUEUED] += 1


@compiled_in_place
def propagate(g: Network, d: Domains) -> bool:
    """Apply the constraints until no domain changes.

    Returns false if the domain of an op becomes empty.
    """
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
    """Shrink the domains of the ops that an op reads from and is read by.

    Returns false if a domain becomes empty.
    """
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
    """Join the chip of a fixed op with the chips of its fixed sources and targets.

    Joined chips restrict other edges. Returns false if a constraint is broken.
    """
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
    """Record that an edge leads from chip `low` to chip `high`.

    Returns whether it is new.
    """
    if low == high or d.joined[low] >> high & 1:
        return False
    d.joined[low] |= 1 << high
    return True


@compiled_in_place
def refresh(d: Domains) -> bool:
    """Recompute which chips an edge may join, from the chips that are joined.

    Returns false if a joined pair breaks the triangle constraint.
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
    """Whether an edge from chip a to chip b is compatible with the triangle constraint.

    The constraint says that if two chips are joined by an edge, no longer path between them
    exists.
    """
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
    """Apply the skip rule to all skips that an op is an end of, or lies between.

    A skip is an edge around which another path leads. Returns false if a domain becomes
    empty.
    """
    for e in range(g.end_at[op], g.end_at[op + 1]):
        skip = g.end_skips[e]
        for i in range(g.skips.between_at[skip], g.skips.between_at[skip + 1]):
            if not _between(g, d, skip, g.skips.between[i]):
                return False
    for e in range(g.inner_at[op], g.inner_at[op + 1]):
        if not _between(g, d, g.inner_skips[e], op):
            return False
    return True


@compiled_in_place
def _between(g: Network, d: Domains, skip: int, op: int) -> bool:
    """Restrict an op on a longer path to the chips between those of the edge's ends.

    skip: number of the edge that the path leads around.

    Returns false if a domain, the set of chips that an op may have, becomes empty.
    """
    first, last = g.skips.ends[skip, 0], g.skips.ends[skip, 1]
    if not shrink(d, op, int(d.domain[first] | d.domain[last])):
        return False
    if d.domain[op] & d.domain[first] == 0:
        both = d.domain[op] & d.domain[last]
        return shrink(d, op, both) and shrink(d, last, both)
    if d.domain[op] & d.domain[last] == 0:
        both = d.domain[op] & d.domain[first]
        return shrink(d, op, both) and shrink(d, first, both)
    return True

"""Skips: edges around which other paths lead, and the triangle constraint on them.

If an edge leads from u to v and z lies on another path from u to v, then z is on the
chip of u or on that of v. Otherwise a path of chips through z would be longer than the
edge. This follows from the constraints, and lets the solver decide before the chips of
u and v are fixed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.features.chips.graph.chip_graph import ChipGraph
from meshwright.search.arrays import Floats, Ints, starts_of

_MOST_BETWEEN = 4_000_000
"""Largest number of ops between the ends of edges, for all edges together.

Edges beyond it are checked only once their chips are fixed. So long chains of skips
cannot fill memory.
"""


class Skips(NamedTuple):
    """Edges around which other paths lead, and the ops on these paths.

    ends: both ends of each skip, [S, 2].
    between_at: offset of each skip in `between`, [S + 1].
    between: ops on the paths around each skip, sorted.
    """

    ends: Ints
    between_at: Ints
    between: Ints


def skips_of(graph: ChipGraph) -> Skips:
    """The edges of a graph around which other paths lead.

    Edges with the fewest ops on these paths come first.
    """
    below, above = _relatives(graph)
    edges: Ints = graph.edges
    found: list[tuple[int, int, int, int]] = []
    for u, v in edges.tolist():
        inside = below[u] & above[v]
        if inside:
            found.append((inside.bit_count(), u, v, inside))
    found.sort()
    total = np.cumsum([count for count, *_ in found])
    found = found[: int((total <= _MOST_BETWEEN).sum())]
    ends = np.array([(u, v) for _, u, v, _ in found], np.int64).reshape(-1, 2)
    between = [_members(inside, graph.num_ops) for *_, inside in found]
    flat = np.concatenate([np.zeros(0, np.int64), *between])
    return Skips(ends, starts_of([len(ops) for ops in between]), flat)


def relative_seconds(graph: ChipGraph) -> tuple[Floats, Floats]:
    """Seconds of all ops from which each op can be reached, and of all that it reaches.

    These are two arrays with a number for each op.
    """
    below, above = _relatives(graph)
    shares: list[Floats] = []
    for sets in (above, below):
        rows = [_members(each, graph.num_ops) for each in sets]
        shares.append(np.array([graph.seconds[row].sum() for row in rows]))
    return shares[0], shares[1]


def _relatives(graph: ChipGraph) -> tuple[list[int], list[int]]:
    """The set of all ops that each op reaches, and the set of ops that reach it.

    Sets are bits of integers.
    """
    below, above = [0] * graph.num_ops, [0] * graph.num_ops
    edges: list[list[int]] = graph.edges.tolist()
    for u, v in reversed(edges):
        below[u] |= 1 << v | below[v]
    for u, v in sorted(edges, key=lambda edge: edge[1]):
        above[v] |= 1 << u | above[u]
    return below, above


def _members(bits: int, num_ops: int) -> Ints:
    """The members of a set of ops, ascending; bit i stands for op i."""
    packed = np.frombuffer(bits.to_bytes(num_ops // 8 + 1, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(packed, bitorder="little"))

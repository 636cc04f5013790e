"""Edges of a graph, and edges with other paths around, as arrays for compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.features.chips.graph.chip_graph import ChipGraph
from meshwright.features.chips.graph.skip_edges import Skips, skips_of
from meshwright.search.arrays import Ints, starts_of


class Network(NamedTuple):
    """Edges and skips of a graph as flat arrays.

    A skip is an edge around which another path leads (see `skip_edges.py`). Arrays whose
    names end in `_at` hold the offset of each op or skip in the array beside them.
    next_at, nexts: targets of the edges from each op.
    prior_at, priors: sources of the edges to each op.
    end_at, end_skips: skips of which each op is an end.
    inner_at, inner_skips: skips around which a path leads through each op.
    """

    next_at: Ints
    nexts: Ints
    prior_at: Ints
    priors: Ints
    skips: Skips
    end_at: Ints
    end_skips: Ints
    inner_at: Ints
    inner_skips: Ints


def network_of(graph: ChipGraph) -> Network:
    """The edges and skips of a graph as arrays."""
    edges, skips, n = graph.edges, skips_of(graph), graph.num_ops
    by_target = edges[np.lexsort((edges[:, 0], edges[:, 1]))]
    ends_at, end_skips = _by_op(skips.ends.ravel(), np.repeat(_ids(skips), 2), n)
    owners = np.repeat(_ids(skips), np.diff(skips.between_at))
    inner_at, inner_skips = _by_op(skips.between, owners, n)
    return Network(
        starts_of(np.bincount(edges[:, 0], minlength=n)),
        np.ascontiguousarray(edges[:, 1]),
        starts_of(np.bincount(edges[:, 1], minlength=n)),
        np.ascontiguousarray(by_target[:, 0]),
        skips,
        ends_at,
        end_skips,
        inner_at,
        inner_skips,
    )


def _ids(skips: Skips) -> Ints:
    return np.arange(len(skips.ends))


def _by_op(ops: Ints, owners: Ints, num_ops: int) -> tuple[Ints, Ints]:
    """Pairs (op, owner), grouped by op: offsets [N + 1] and the owners."""
    order = np.argsort(ops, kind="stable")
    return starts_of(np.bincount(ops, minlength=num_ops)), owners[order]

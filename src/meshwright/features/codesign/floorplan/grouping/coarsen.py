"""Merging of a hypergraph's vertices, most connected first, into clusters of like size."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from meshwright.search.arrays import Bools, Floats, Ints, owners_of, starts_of
from meshwright.search.compiled import compiled

_IMBALANCE = 1.05
"""Size of a cluster over the mean at which merging stops at first."""

_GROWTH = 1.5
"""Factor of that size when nothing merges any more."""


class Hypergraph(NamedTuple):
    """Nets and the vertices on them, flat, both ways around."""

    net_starts: Ints
    net_vertices: Ints
    vertex_starts: Ints
    vertex_nets: Ints


def coarsen(
    anchors: Ints,
    vertices: Bools,
    nets: Sequence[tuple[int, tuple[int, ...]]],
    parts: int,
    seed: int,
) -> Ints:
    """The cluster of each vertex, -1 for nodes that are none.

    anchors: cluster of the nodes that have one from the outset; these are never merged with
        each other, and keep their numbers.
    nets: source and sinks of each net.
    parts: clusters wanted besides the anchors.
    """
    num_anchors = int(anchors.max(initial=-1)) + 1
    label = anchors.copy()
    free = np.flatnonzero(vertices & (anchors < 0))
    label[free] = num_anchors + np.arange(len(free))
    net = np.repeat(np.arange(len(nets)), [1 + len(sinks) for _, sinks in nets])
    ends = np.array([e for source, sinks in nets for e in (source, *sinks)], np.int64)
    goal = num_anchors + min(parts, len(free))
    cap = max(2.0, _IMBALANCE * vertices.sum() / max(goal, 1))
    rng = np.random.default_rng(seed)
    while (count := int(label.max(initial=-1)) + 1) > goal:
        graph = _graph(net, label[ends], count)
        size = np.bincount(label[label >= 0], minlength=count).astype(np.float64)
        order = num_anchors + rng.permutation(count - num_anchors)
        merged = _merge(graph, size, num_anchors, order, cap, count - goal)
        if (merged == np.arange(count)).all():
            if cap > len(label):
                merged = _deal(count, num_anchors, goal)
            cap *= _GROWTH
        kept = np.unique(np.concatenate([np.arange(num_anchors), merged]))
        label[label >= 0] = np.searchsorted(kept, merged[label[label >= 0]])
    return label


def _graph(net: Ints, ends: Ints, count: int) -> Hypergraph:
    """The hypergraph of clusters: each once on a net, nets of two clusters or more."""
    pairs = np.unique(net[ends >= 0] * count + ends[ends >= 0])
    net, vertex = pairs // count, pairs % count
    size = np.bincount(net, minlength=int(net.max(initial=-1)) + 1)
    is_kept = size[net] > 1
    net, vertex = np.unique(net[is_kept], return_inverse=True)[1], vertex[is_kept]
    net_starts = starts_of(np.bincount(net))
    order = np.argsort(vertex, kind="stable")
    vertex_starts = starts_of(np.bincount(vertex, minlength=count))
    return Hypergraph(net_starts, vertex, vertex_starts, owners_of(net_starts)[order])


def _deal(count: int, num_anchors: int, goal: int) -> Ints:
    """Put clusters without any connection together, one after the other."""
    merged = np.arange(count)
    wanted = max(goal - num_anchors, 1)
    merged[num_anchors:] = num_anchors + (merged[num_anchors:] - num_anchors) % wanted
    return merged


@compiled
def _score_neighbours(
    graph: Hypergraph, vertex: int, into: Ints, score: Floats, touched: Ints
) -> int:
    """Add up a vertex's connections to each cluster; returns how many were touched.

    A net of k vertices connects two of them by 1 / (k - 1).
    """
    seen = 0
    for at in range(graph.vertex_starts[vertex], graph.vertex_starts[vertex + 1]):
        net = graph.vertex_nets[at]
        first, last = graph.net_starts[net], graph.net_starts[net + 1]
        for other in graph.net_vertices[first:last]:
            root = into[other]
            if root != vertex:
                if score[root] == 0.0:
                    touched[seen] = root
                    seen += 1
                score[root] += 1.0 / (last - first - 1)
    return seen


@compiled
def _merge(
    graph: Hypergraph,
    size: Floats,
    num_anchors: int,
    order: Ints,
    cap: float,
    most: int,
) -> Ints:
    """The vertex into which each is merged, itself for those that stay.

    Each vertex in turn, unless others were merged into it, joins the neighbour of the
    highest connection for its size.
    """
    count = len(size)
    into, is_root = np.arange(count), np.zeros(count, np.bool_)
    is_root[:num_anchors] = True
    score, touched = np.zeros(count), np.zeros(count, np.int64)
    for vertex in order:
        if is_root[vertex]:
            continue
        seen = _score_neighbours(graph, vertex, into, score, touched)
        best, highest = -1, 0.0
        for root in touched[:seen]:
            value = score[root] / size[root]
            score[root] = 0.0
            if size[root] + size[vertex] <= cap and value > highest:
                best, highest = root, value
        if best >= 0:
            into[vertex] = best
            is_root[best] = True
            size[best] += size[vertex]
            most -= 1
            if most == 0:
                break
    return into

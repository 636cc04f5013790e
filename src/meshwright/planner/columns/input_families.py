"""A finer symmetry reduction, in which each input of a layer decides for itself.

The state of an optimizer looks alike for all parameters of one shape, so that the symmetry
reduction puts different parameters into one group. Values that are tied dim by dim, such
as a parameter, its gradient and its moments, make a family. Nodes whose families have
different inputs are put into different groups.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from meshwright.partitioner.propagate import Graph
from meshwright.planner.strategies.symmetry import ReducedGraph, Runs, group_nodes


def split_by_inputs(graph: Graph, coarse: ReducedGraph) -> ReducedGraph:
    """The reduction with groups split by the inputs of their members' families."""
    families = _families(graph)
    inputs: dict[int, set[int]] = {}
    for node in graph.input_nodes:
        own = inputs.setdefault(families[node.outs[0][0]], set())
        own.add(coarse.class_of[node.index])
    labels: list[Hashable] = []
    for node, group in zip(graph.nodes, coarse.class_of, strict=True):
        own = inputs.get(families[node.outs[0][0]], ()) if node.outs else ()
        labels.append((group, frozenset(own)))
    return group_nodes(Runs(graph), labels)


def _families(graph: Graph) -> list[int]:
    """The number of the family of each value."""
    tied: list[tuple[int, int]] = []
    for node in graph.nodes:
        first, own = node.outs[0] if node.outs else (-1, ())
        if not own or any(len(factors) != 1 for factors in own):
            continue
        for value, dims in (*node.outs, *node.ins):
            same_shape = graph.values[value].shape == graph.values[first].shape
            if dims == own and same_shape:
                tied.append((first, value))
    size = len(graph.values)
    edges = coo_array(
        (np.ones(len(tied)), np.array(tied, np.int64).reshape(-1, 2).T), (size, size)
    )
    return connected_components(edges, directed=False)[1].tolist()

"""A finer symmetry reduction, in which each input of a layer decides for itself.

The state of an optimizer looks alike for all parameters of one shape, so that the symmetry
reduction puts different parameters into one group. Values that are tied dim by dim, such
as a parameter, its gradient and its moments, make a family. Nodes whose families have
different inputs are put into different groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from meshwright.partitioner.propagate import Graph, Node
from meshwright.planner.strategies.symmetry import ClassEdge, NodeClass, ReducedGraph


def split_by_inputs(graph: Graph, coarse: ReducedGraph) -> ReducedGraph:
    """The reduction with groups split by the inputs of their members' families."""
    families = _families(graph)
    inputs: dict[int, set[int]] = {}
    for node in graph.input_nodes:
        own = inputs.setdefault(families[node.outs[0][0]], set())
        own.add(coarse.class_of[node.index])
    tags = {family: tuple(sorted(groups)) for family, groups in inputs.items()}
    return split_groups(
        graph, coarse, [_tag(node, families, tags) for node in graph.nodes]
    )


def split_groups(
    graph: Graph, coarse: ReducedGraph, tags: list[Hashable]
) -> ReducedGraph:
    """The reduction with groups split where members have different tags, [N]."""
    labels = list(zip(coarse.class_of, tags, strict=True))
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    class_of = tuple(numbers[label] for label in labels)
    members: list[list[int]] = [[] for _ in numbers]
    for index, group in enumerate(class_of):
        members[group].append(index)
    groups: list[NodeClass] = []
    for index, own in enumerate(members):
        old = coarse.classes[coarse.class_of[own[0]]]
        runs = old.runs / len(old.members) * len(own)
        groups.append(NodeClass(index, graph.nodes[own[0]], tuple(own), runs))
    return replace(
        coarse,
        classes=tuple(groups),
        edges=_edges(graph, coarse, class_of),
        class_of=class_of,
    )


def _edges(
    graph: Graph, coarse: ReducedGraph, class_of: tuple[int, ...]
) -> tuple[ClassEdge, ...]:
    """The edges between split groups.

    The runs of each coarse edge are shared equally by the operands that it stood for.
    """
    places = {
        value: (node.index, result)
        for node in graph.nodes
        for result, (value, _) in enumerate(node.outs)
    }
    old: Counter[tuple[int, int, int, int]] = Counter()
    new: Counter[tuple[tuple[int, int, int, int], tuple[int, int, int, int]]] = (
        Counter()
    )
    for node in graph.nodes:
        for operand, (value, _) in enumerate(node.ins):
            maker, result = places[value]
            both = [
                (groups[maker], result, groups[node.index], operand)
                for groups in (coarse.class_of, class_of)
            ]
            old[both[0]] += 1
            new[both[0], both[1]] += 1
    runs = {(e.producer, e.result, e.consumer, e.operand): e.runs for e in coarse.edges}
    return tuple(
        ClassEdge(*key, runs=runs[before] * count / old[before])
        for (before, key), count in new.items()
    )


def _tag(
    node: Node, families: dict[int, int], tags: dict[int, tuple[int, ...]]
) -> Hashable:
    return tags.get(families[node.outs[0][0]], ()) if node.outs else ()


def _families(graph: Graph) -> dict[int, int]:
    """A representative of the family of each value, by union-find."""
    parent = {value: value for value in range(len(graph.values))}

    def find(value: int) -> int:
        while parent[value] != value:
            parent[value] = parent[parent[value]]
            value = parent[value]
        return value

    for node in graph.nodes:
        tied = [
            value
            for value, dims in (*node.outs, *node.ins)
            if node.outs and dims and dims == node.outs[0][1] and _has_single_factors(dims)
            and graph.values[value].shape == graph.values[node.outs[0][0]].shape
        ]  # fmt: skip
        for value in tied[1:]:
            parent[find(value)] = find(tied[0])
    return {value: find(value) for value in parent}


def _has_single_factors(dims: tuple[tuple[int, ...], ...]) -> bool:
    """Whether each dim is a single factor."""
    return all(len(factors) == 1 for factors in dims)

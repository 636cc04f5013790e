"""A graph with one node for all ops of one source site that are sharded alike.

Equal layers become one, so that propagation takes as long as over two or three layers,
however many there are.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from meshwright.partitioner.propagate import Cause, Graph, Node, Propagator, State
from meshwright.partitioner.propagate.graph import Port
from meshwright.partitioner.structure.sites import sites_of
from meshwright.partitioner.structure.workspace import without_indices
from meshwright.partitioner.tactics import Workspace
from meshwright.planner.strategies.symmetry import reduce_by_symmetry
from meshwright.program.ir import num_bytes
from meshwright.program.ops import work_of

_FLOPS_PER_BYTE = 128
"""Operations in the time of moving one byte.

The number is right within a factor of 2 for most accelerators.
"""
_START = 2**18
"""Bytes that could be moved in the time that an op or collective needs to start."""
_STORED = 4
"""Weight of sharding a stored input, relative to a value that is read once."""


@dataclass(frozen=True, slots=True, eq=False)
class SiteGraph:
    """A graph in which one node represents all ops of a site that are sharded alike.

    members: for each node, indices of the original nodes that it represents.
    weights: for each node, the bytes that the original nodes move, plus the bytes that
        could be moved in the time of their operations.
    """

    graph: Graph
    members: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]


def build_site_graph(work: Workspace) -> SiteGraph:
    """The site graph of a workspace with all decisions of a plan.

    Nodes are merged if they are symmetric under these decisions, belong to the same
    source site or the same family of input leaves, and depend on the same leaves.
    """
    graph = work.graph
    folded = reduce_by_symmetry(work.state)
    places = sites_of(graph).place_of
    names: dict[int, object] = {
        node.index: without_indices(path)
        for path, node in zip(work.paths, graph.input_nodes, strict=True)
    }
    names.update(places)
    leaves = _dependences(work)
    keys = [(group, names.get(i), leaves[i]) for i, group in enumerate(folded.class_of)]
    numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    class_of = [numbers[key] for key in keys]
    members: list[list[int]] = [[] for _ in numbers]
    for index, group in enumerate(class_of):
        members[group].append(index)
    runs = [g.runs / len(g.members) for g in folded.classes]
    weights = tuple(
        len(own)
        * runs[folded.class_of[own[0]]]
        * _heuristic_weight(graph, graph.nodes[own[0]])
        for own in members
    )
    small = _small_graph(graph, class_of, members)
    return SiteGraph(small, tuple(map(tuple, members)), weights)


def _dependences(work: Workspace) -> list[tuple[int, int]]:
    """Bit sets of the input leaves that each node depends on, and that it updates.

    Dependences are transitive; corresponding leaves of all layers share a bit. The bits
    tell ops of one source line apart, such as the updates of a query's and of a key's
    moments.
    """
    graph = work.graph
    numbers: dict[str, int] = {}
    bits = [
        1 << numbers.setdefault(without_indices(p), len(numbers)) for p in work.paths
    ]
    before, after = [0] * len(graph.values), [0] * len(graph.values)
    for node, bit in zip(graph.input_nodes, bits, strict=True):
        before[node.outs[0][0]] = bit
    for out, position in graph.ties.items():
        value = graph.number.get(graph.program.outputs[out])  # pyright: ignore[reportArgumentType]
        if value is not None:
            after[value] |= bits[position]
    for _ in range(2):  # the second pass carries bits around loops
        for node in graph.nodes:
            if node.input_position is None:
                _spread(before, node.ins, node.outs)
        for node in reversed(graph.nodes):
            if node.input_position is None:
                _spread(after, node.outs, node.ins)
    return [
        (
            reduce(or_, (before[v] for v, _ in (*node.ins, *node.outs)), 0),
            reduce(or_, (after[v] for v, _ in node.outs), 0),
        )
        if node.input_position is None
        else (0, 0)
        for node in graph.nodes
    ]


def _spread(marks: list[int], ins: Sequence[Port], outs: Sequence[Port]) -> None:
    """Add the bits of all values in `ins` to each value in `outs`."""
    mark = 0
    for value, _ in ins:
        mark |= marks[value]
    for value, _ in outs:
        marks[value] |= mark


def start_on(sites: SiteGraph, start: Workspace) -> Workspace:
    """A workspace over the site graph, with the decisions of the workspace `start`."""
    state = State(sites.graph, start.state.mesh)
    cause = Cause("tactic", "")
    for small, own in zip(sites.graph.nodes, sites.members, strict=True):
        first = start.graph.nodes[own[0]]
        for axis, factor in start.state.factor_of[first.index].items():
            state.assign(small, axis, factor, cause)
        for axis in sorted(start.state.blocked[first.index]):
            state.block(small, axis)
        for (value, _), (real, _) in zip(small.outs, first.outs, strict=True):
            for axis in state.size:
                if (real, axis) in start.state.scattered:
                    state.scatter(value, axis, start.state.scattered[real, axis])
    return Workspace(Propagator(state), (), start.mesh, start.sub_axes)


def _heuristic_weight(graph: Graph, node: Node) -> float:
    """The weight of a node, in bytes; it does not predict the node's time.

    Spelling only needs to know which decisions to match first. With times of the
    planner's cost model, the tactics found would depend on the machine.
    """
    values = dict.fromkeys(v for v, _ in (*node.ins, *node.outs))
    moved = float(_START + sum(num_bytes(graph.values[v]) for v in values))
    if node.input_position is not None:
        return _START + _STORED * sum(num_bytes(graph.values[v]) for v, _ in node.outs)
    if node.op is None or node.wire is not None:
        return moved
    return moved + work_of(node.op).flops / _FLOPS_PER_BYTE


def _small_graph(
    graph: Graph, class_of: Sequence[int], members: Sequence[Sequence[int]]
) -> Graph:
    small = copy.copy(graph)
    number: dict[int, int] = {}  # of a value, in the small graph
    small.values, small.producer = [], []
    for group, own in enumerate(members):
        for result, (value, _) in enumerate(graph.nodes[own[0]].outs):
            for index in own:
                number[graph.nodes[index].outs[result][0]] = len(small.values)
            small.values.append(graph.values[value])
            small.producer.append(group)
    small.number = {v: number[n] for v, n in graph.number.items() if n in number}
    small.nodes = [
        _small_node(graph, group, own, number) for group, own in enumerate(members)
    ]
    small.consumers = [[] for _ in small.values]
    for node in small.nodes:
        for value in dict.fromkeys(v for v, _ in node.ins):
            small.consumers[value].append(node.index)

    def of(node: Node) -> Node:
        return small.nodes[class_of[node.index]]

    small.op_node = {op: of(node) for op, node in graph.op_node.items()}
    small.wire_nodes = {
        op: tuple(map(of, nodes)) for op, nodes in graph.wire_nodes.items()
    }
    small.input_nodes = tuple(map(of, graph.input_nodes))
    return small


def _small_node(
    graph: Graph, group: int, own: Sequence[int], number: dict[int, int]
) -> Node:
    first = graph.nodes[own[0]]
    ins: dict[Port, None] = {}
    for index in own:
        for value, dims in graph.nodes[index].ins:
            ins[number[value], dims] = None
    outs = tuple((number[value], dims) for value, dims in first.outs)
    return replace(first, index=group, ins=tuple(ins), outs=outs)

"""Nodes that stand alike in a program decide alike: repeated layers become one.

Nodes get the same label where their op, its shapes and its neighbourhood are the same,
neighbours of neighbours included (colour refinement; Weisfeiler and Lehman, 1968). What
is decided for a label holds for each of its nodes, so that the cost of a decision over
labels is exactly that of the same decision over nodes, however coarse the labels are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from meshwright.partitioner.propagate import Graph, Node, State
from meshwright.program.ir import Program

ROUNDS = 3
"""Neighbours of neighbours of neighbours: enough to tell a query from a value."""


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that decide alike; `node` stands for all, `runs` is how often all run."""

    index: int
    node: Node
    members: tuple[int, ...]
    runs: float


@dataclass(frozen=True, slots=True)
class ClassEdge:
    """A value of one group that another reads: result number, operand number.

    runs: how often it is brought from the one to the other in a step.
    """

    producer: int
    result: int
    consumer: int
    operand: int
    runs: float


@dataclass(frozen=True, slots=True)
class ReducedGraph:
    """Groups, edges between them, and the group of each node."""

    classes: tuple[NodeClass, ...]
    edges: tuple[ClassEdge, ...]
    class_of: tuple[int, ...]


def reduce_by_symmetry(state: State, rounds: int = ROUNDS) -> ReducedGraph:
    """The groups of a graph; nodes about which a state says different things differ."""
    graph = state.graph
    runs = _Runs(graph)
    labels = _labels(state, runs, rounds)
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    class_of = tuple(numbers[label] for label in labels)
    members: list[list[int]] = [[] for _ in numbers]
    for index, group in enumerate(class_of):
        members[group].append(index)
    classes = tuple(
        NodeClass(
            index,
            graph.nodes[own[0]],
            tuple(own),
            sum(runs.of_node(graph.nodes[i]) for i in own),
        )
        for index, own in enumerate(members)
    )
    counted: Counter[tuple[int, int, int, int]] = Counter()
    places = producers_of(graph)
    for node in graph.nodes:
        for operand, (value, _) in enumerate(node.ins):
            maker, result = places[value]
            key = (class_of[maker], result, class_of[node.index], operand)
            counted[key] += runs.of_reading(node, value)  # pyright: ignore[reportArgumentType]
    edges = tuple(ClassEdge(*key, runs=count) for key, count in counted.items())
    return ReducedGraph(classes, edges, class_of)


def producers_of(graph: Graph) -> dict[int, tuple[int, int]]:
    """Per value the node that makes it, and as which of its results."""
    return {
        value: (node.index, result)
        for node in graph.nodes
        for result, (value, _) in enumerate(node.outs)
    }


class _Runs:
    """How often things run in a step: a loop's body once for each turn.

    What a loop is handed for all its turns is brought to its readers once, before it.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._of_value: dict[int, float] = {}
        for program, turns in _programs(graph.program, 1.0):
            made = [r for op in program.ops for r in op.results]
            for value in (*program.inputs, *program.constants, *made):
                number = graph.number.get(value)
                if number is not None:
                    self._of_value[number] = turns
        self._brought: dict[int, float] = {}
        for node in graph.nodes:  # outer loops before those in them
            operand = node.ins[0][0] if node.ins else -1
            is_again = node.is_remat_constant and operand in self._brought
            if node.is_loop_constant or is_again:
                outside = self.of_reading(node, operand)
                self._brought |= dict.fromkeys((v for v, _ in node.outs), outside)

    def of_value(self, value: int) -> float:
        return self._of_value.get(value, 1.0)

    def of_node(self, node: Node) -> float:
        """How often a node runs: as often as its results are made."""
        if node.outs and node.outs[0][0] in self._brought:
            return self._brought[node.outs[0][0]]
        return max((self.of_value(v) for v, _ in (*node.outs, *node.ins)), default=1.0)

    def of_reading(self, node: Node, value: int) -> float:
        """A loop's end is met where the value lives, all else where the reader is."""
        if value in self._brought:
            return self._brought[value]
        if node.wire is not None or node.op is None:
            return self.of_value(value)
        return self.of_node(node)


def _programs(program: Program, turns: float) -> Iterator[tuple[Program, float]]:
    yield program, turns
    for op in program.ops:
        length = op.params.get("length", 1) if op.kind == "scan" else 1
        for body in op.bodies:
            yield from _programs(body, turns * float(length))  # pyright: ignore[reportArgumentType]


def _labels(state: State, runs: _Runs, rounds: int) -> list[Hashable]:
    graph = state.graph
    labels: list[int] = _numbered(
        [(*_nature(state, node), runs.of_node(node)) for node in graph.nodes]
    )
    for _ in range(rounds):
        readers: list[list[tuple[int, int]]] = [[] for _ in graph.values]
        for node in graph.nodes:
            for operand, (value, _) in enumerate(node.ins):
                readers[value].append((labels[node.index], operand))
        labels = _numbered(
            [
                (
                    labels[node.index],
                    tuple(labels[graph.producer[v]] for v, _ in node.ins),
                    tuple(tuple(sorted(set(readers[v]))) for v, _ in node.outs),
                )
                for node in graph.nodes
            ]
        )
    return list(labels)


def _numbered(labels: list[tuple[object, ...]]) -> list[int]:
    known: dict[tuple[object, ...], int] = {}
    return [known.setdefault(label, len(known)) for label in labels]


def _nature(state: State, node: Node) -> tuple[object, ...]:
    """What a node is by itself, and what has been decided about it."""
    ends = tuple(state.graph.values[v].dtype for v, _ in (*node.ins, *node.outs))
    wire = node.wire
    shape = None if wire is None else (wire.is_stacked, len(wire.inputs))
    decided = tuple(sorted(state.axes_of[node.index].items()))
    scattered = tuple(
        (axis, state.scattered[value, axis])
        for value, _ in (node.outs if state.scattered else ())
        for axis in state.size
        if (value, axis) in state.scattered
    )
    return (
        node.label,
        id(node.rule),
        node.sizes,
        ends,
        shape,
        tuple(len(dims) for _, dims in (*node.ins, *node.outs)),
        decided,
        scattered,
        tuple(sorted(state.blocked[node.index])),
    )

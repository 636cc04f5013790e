"""Symmetry reduction: nodes in equal positions of a program form one class.

Nodes (ops and inputs) get the same label if their op, its shapes and its neighbourhood
are the same, neighbours of neighbours included (colour refinement; Weisfeiler and
Lehman, 1968), so that repeated layers become one. A strategy chosen for a class holds
for all its nodes. Choices over classes cost exactly as much as the same choices over
nodes; with fewer classes there are only fewer plans.

`reduce_by_symmetry` may put different parameters of one shape into one class, since an
optimizer treats them alike. `split_by_inputs` keeps them apart, so that each input of a
layer is decided alone. Values that are tied dim by dim, such as a parameter, its
gradient and its moments, form a family; nodes whose families have different inputs are
put into different classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from meshwright.partitioner.propagate import Graph, Node, State
from meshwright.partitioner.structure.sites import refined_labels
from meshwright.program.analysis.executions import num_iterations
from meshwright.program.ir import Program

_ROUNDS = 3
"""Rounds of colour refinement; three tell a query from a value in attention."""


@dataclass(frozen=True, slots=True)
class NodeClass:
    """A class of equal nodes (ops or inputs), which get the same strategy.

    node: one of the nodes, which represents all.
    members: indices of all nodes of the class.
    runs: executions in a step, summed over the members.
    """

    index: int
    node: Node
    members: tuple[int, ...]
    runs: float


@dataclass(frozen=True, slots=True)
class ClassEdge:
    """A result of one node class that is an operand of another.

    producer, consumer: numbers of the two classes.
    result, operand: number of the result at the producer, and of the operand at the
        consumer.
    runs: number of times in a step that the value is resharded between the two.
    """

    producer: int
    result: int
    consumer: int
    operand: int
    runs: float


@dataclass(frozen=True, slots=True)
class ReducedGraph:
    """A dataflow graph after symmetry reduction, which merges equal nodes.

    class_of: for each node by index, the number of its class.
    """

    classes: tuple[NodeClass, ...]
    edges: tuple[ClassEdge, ...]
    class_of: tuple[int, ...]


def reduce_by_symmetry(state: State) -> ReducedGraph:
    """The symmetry-reduced graph of a propagation state.

    Nodes about which the state has decided differently are in different classes.
    """
    runs = Runs(state.graph)
    nodes = state.graph.nodes
    first = [(*_first_label(state, node), runs.of_node(node)) for node in nodes]
    return group_nodes(runs, refined_labels(state.graph, first, _ROUNDS))


def split_by_inputs(graph: Graph, coarse: ReducedGraph) -> ReducedGraph:
    """The reduced graph `coarse`, with nodes of a class separated by their inputs.

    The inputs of a node are those among the values of one shape that elementwise ops
    tie to its first result (`_families`), such as the weight of a gradient.
    """
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
    """The number of each value's family.

    A family consists of the values of one shape that elementwise ops connect to each
    other.
    """
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


def group_nodes(runs: Runs, labels: Sequence[Hashable]) -> ReducedGraph:
    """The reduced graph in which nodes with equal labels form a class.

    labels: one per node.
    """
    nodes = runs.graph.nodes
    members: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    numbers = {label: number for number, label in enumerate(members)}
    class_of = tuple(numbers[label] for label in labels)
    classes = tuple(
        NodeClass(
            number, nodes[own[0]], tuple(own), sum(runs.of_node(nodes[i]) for i in own)
        )
        for number, own in enumerate(members.values())
    )
    return ReducedGraph(classes, _class_edges(runs, class_of), class_of)


def _class_edges(runs: Runs, class_of: tuple[int, ...]) -> tuple[ClassEdge, ...]:
    counted: Counter[tuple[int, int, int, int]] = Counter()
    producers = producers_of(runs.graph)
    for node in runs.graph.nodes:
        for operand, (value, _) in enumerate(node.ins):
            producer, result = producers[value]
            key = (class_of[producer], result, class_of[node.index], operand)
            counted[key] += runs.of_reading(node, value)  # pyright: ignore[reportArgumentType]
    return tuple(ClassEdge(*key, runs=count) for key, count in counted.items())


def producers_of(graph: Graph) -> dict[int, tuple[int, int]]:
    """The node that produces each value, and the value's number among its results."""
    return {
        value: (node.index, result)
        for node in graph.nodes
        for result, (value, _) in enumerate(node.outs)
    }


def loop_invariants(graph: Graph) -> dict[int, Node]:
    """The node by which each loop-invariant value enters its loop.

    Of nested loops, the outermost one counts in which the value is invariant.
    """
    found: dict[int, Node] = {}
    for node in graph.nodes:  # outer loops before those in them
        wire = found.get(node.ins[0][0]) if node.ins else None
        if wire is None and node.is_loop_constant:
            wire = node
        if wire is not None and (node.is_loop_constant or node.is_remat_constant):
            found |= dict.fromkeys((value for value, _ in node.outs), wire)
    return found


class Runs:
    """The number of executions of nodes in a step.

    A loop's body runs once per iteration. A loop-invariant value is resharded once,
    before the loop.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._of_value: dict[int, float] = {}
        for program, iterations in _nested_programs(graph.program, 1.0):
            made = [r for op in program.ops for r in op.results]
            for value in (*program.inputs, *program.constants, *made):
                number = graph.number.get(value)
                if number is not None:
                    self._of_value[number] = iterations
        self._of_invariant = {
            value: self.of_value(wire.ins[0][0])
            for value, wire in loop_invariants(graph).items()
        }

    def of_value(self, value: int) -> float:
        return self._of_value.get(value, 1.0)

    def of_node(self, node: Node) -> float:
        """The number of times in a step that a node runs and computes its results."""
        if node.outs and node.outs[0][0] in self._of_invariant:
            return self._of_invariant[node.outs[0][0]]
        return max((self.of_value(v) for v, _ in (*node.outs, *node.ins)), default=1.0)

    def of_reading(self, node: Node, value: int) -> float:
        """The number of times in a step that a value is resharded for a node.

        If the node passes the value into or out of a loop or branch, this happens each
        time that the value is computed; otherwise, each time that the node runs. A
        loop-invariant value is resharded once.
        """
        if value in self._of_invariant:
            return self._of_invariant[value]
        if node.wire is not None or node.op is None:
            return self.of_value(value)
        return self.of_node(node)


def _nested_programs(
    program: Program, iterations: float
) -> Iterator[tuple[Program, float]]:
    yield program, iterations
    for op in program.ops:
        for body in op.bodies:
            yield from _nested_programs(body, iterations * num_iterations(op))


def _first_label(state: State, node: Node) -> tuple[object, ...]:
    """The initial colour of a node for colour refinement.

    It consists of the node's op, shapes and dtypes, and of the decisions about it.
    """
    dtypes = tuple(state.graph.values[v].dtype for v, _ in (*node.ins, *node.outs))
    wire = node.wire
    shape = None if wire is None else (wire.is_stacked, len(wire.inputs))
    decided = tuple(sorted(state.axes_of[node.index].items()))
    return (
        node.label,
        node.signature,
        node.sizes,
        dtypes,
        shape,
        tuple(len(dims) for _, dims in (*node.ins, *node.outs)),
        decided,
        scattered_dims(state, node),
        tuple(sorted(state.blocked[node.index])),
    )


def scattered_dims(state: State, node: Node) -> tuple[tuple[str, int], ...]:
    """The (axis, dim) pairs along which a node's results are reduce-scattered."""
    return tuple(
        (axis, state.scattered[value, axis])
        for value, _ in (node.outs if state.scattered else ())
        for axis in state.size
        if (value, axis) in state.scattered
    )

"""Dependence of values on a program's inputs, as bit sets: bit `i` stands for input `i`."""

import math
from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush

from meshwright.partitioner.propagate import Graph, Node
from meshwright.program.analysis.updates import (
    elementwise_sources,
    gradient_values,
    update_path,
)
from meshwright.program.ir import Program, Value
from meshwright.program.ops import Trait, has_trait


def find_dependence(graph: Graph, stops: Collection[int] = ()) -> list[int]:
    """Bit sets of the inputs on which values depend, indexed by the value's number.

    stops: indices of nodes whose results do not depend on their operands.
    """
    bits = _start(graph)
    nodes = [node for node in graph.nodes if node.op is not None]
    todo = [node.index for node in nodes]
    while todo:  # a heap, so that nodes are visited nearly in the program's order
        node = graph.nodes[heappop(todo)]
        if node.index not in stops and _flow(node, bits):
            for value, _ in node.outs:
                for reader in graph.consumers[value]:
                    if graph.nodes[reader].op is not None:
                        heappush(todo, reader)
    return bits


def products_of(graph: Graph) -> frozenset[int]:
    """Indices of the matrix products and convolutions."""
    return frozenset(node.index for node in graph.nodes if node.is_contraction)


def find_merged(
    graph: Graph, paths: Sequence[str], first: Sequence[int], direct: Sequence[int]
) -> dict[int, int]:
    """Products of two inputs that are added to a third one, as adapters are to weights.

    In `x @ (w + b @ a)` it is `b @ a`: a matrix of low rank, whose factors share an
    argument. For each such node, by index, the bits of the three inputs.
    first, direct: as in `Reads`.
    """
    found: dict[int, int] = {}
    for node in graph.nodes:
        if not node.is_contraction or len(node.ins) != 2 or not _is_low_rank(node):
            continue
        bits = [direct[value] for value, _ in node.ins]
        is_alone = all(first[value] == direct[value] for value, _ in node.ins)
        if not (is_alone and all(bits)) or bits[0] & bits[1]:
            continue
        factors = [paths[i] for i in members(bits[0] | bits[1])]
        has_trees = any("." in path for path in factors)
        if has_trees and len({path.partition(".")[0] for path in factors}) > 1:
            continue
        sums = [
            bits[0] | bits[1] | direct[value]
            for value in _added_to(graph, node.outs[0][0])
            if direct[value] and first[value] == direct[value]
        ]
        if sums:
            found[node.index] = sums[0]
    return found


def _is_low_rank(node: Node) -> bool:
    """Whether a product sums over at most half as many elements as either side has."""
    rule = node.rule
    assert rule is not None
    sides = [{f for fs in dims for f in fs} for _, dims in node.ins]
    free = [
        math.prod(rule.sizes[f] for f in own - other)
        for own, other in (sides, reversed(sides))
    ]
    return 2 * math.prod(rule.sizes[f] for f in rule.reductions) <= min(free)


def _added_to(graph: Graph, value: int) -> Iterator[int]:
    """The values of equal shape that a value is added to, perhaps scaled before."""
    todo, seen = [value], {value}
    while todo:
        now = todo.pop()
        shape = graph.values[now].shape
        for index in graph.consumers[now]:
            node = graph.nodes[index]
            others = [v for v, _ in node.ins if v != now and graph.values[v].shape]
            if node.label in ("add", "sub"):
                yield from (v for v in others if graph.values[v].shape == shape)
            elif not others and (
                node.label == "transpose" or has_trait(node.label, Trait.ELEMENTWISE)
            ):
                new = [v for v, _ in node.outs if v not in seen]
                seen.update(new)
                todo += new


def find_first_dependence(graph: Graph) -> list[int]:
    """Bit sets of the inputs on which values depend, as if no state had been updated.

    A program may train in a loop, or several times in a row. A value after the first
    update of a parameter depends on all of the state, which hides which inputs are
    parameters. So loops count as one iteration, and an updated value is taken to depend
    only on data. A value is the update of a state input if elementwise ops of one shape
    lead from it to the output that replaces the input, and if it is the first such
    value that depends on data.
    """
    on_path = _find_update_paths(graph)
    state = sum(1 << i for i in set(graph.ties.values()))
    bits = _start(graph)
    _visit_once(graph, graph.program, bits, on_path, state)
    return bits


def members(bits: int) -> list[int]:
    """Positions of the set bits of an integer, in increasing order."""
    return [i for i in range(bits.bit_length()) if bits >> i & 1]


def _flow(node: Node, bits: list[int]) -> bool:
    """Add the bits of a node's operands to its results; True if a result changed."""
    operand_bits = 0
    for value, _ in node.ins:
        operand_bits |= bits[value]
    changed = False
    for value, _ in node.outs:
        if operand_bits & ~bits[value]:
            bits[value] |= operand_bits
            changed = True
    return changed


def _start(graph: Graph) -> list[int]:
    bits = [0] * len(graph.values)
    for position, node in enumerate(graph.input_nodes):
        bits[node.outs[0][0]] = 1 << position
    return bits


def _find_update_paths(graph: Graph) -> list[int]:
    """Bit sets of the state inputs whose new values may be computed from a value.

    There is one set per value. Elementwise ops of one shape lead from the value to the
    output that replaces the input.
    """
    on_path = [0] * len(graph.values)
    sources = elementwise_sources(graph.program)
    gradients = gradient_values(graph.program)
    for output, position in graph.ties.items():
        atom = graph.program.outputs[output]
        if gradients and atom not in gradients:
            continue
        for value in update_path(sources, atom) if isinstance(atom, Value) else ():
            if value in graph.number:
                on_path[graph.number[value]] |= 1 << position
    return on_path


def _visit_once(
    graph: Graph, program: Program, bits: list[int], on_path: list[int], state: int
) -> None:
    """Propagate dependence bits with each loop run once.

    Results that are updated state lose the bits of state inputs.

    state: bits of all state inputs. on_path: the result of `_find_update_paths`.
    """
    for op in program.ops:
        if not op.bodies:
            _flow(graph.op_node[op], bits)
            _forget(graph.op_node[op], bits, on_path, state)
            continue
        wires = graph.wire_nodes[op]
        for node in wires:
            _flow(node, bits)
        for body in op.bodies:
            _visit_once(graph, body, bits, on_path, state)
        inner = [graph.number[v] for body in op.bodies for v in body.inputs]
        before = [bits[value] for value in inner]
        for node in wires:
            _flow(node, bits)
            _forget(node, bits, on_path, state)
        for value, old in zip(inner, before, strict=True):  # no second iteration
            bits[value] = old


def _forget(node: Node, bits: list[int], on_path: list[int], state: int) -> None:
    """Remove the bits of state inputs from a node's results that are updated state.

    on_path: the result of `_find_update_paths`. state: bits of all state inputs.
    """
    for value, _ in node.outs:
        if bits[value] & ~state and bits[value] & on_path[value]:
            bits[value] &= ~state

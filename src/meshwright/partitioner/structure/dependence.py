"""Data dependence: the inputs that each value depends on, through loops and branches."""

from __future__ import annotations

from meshwright.partitioner.propagate import Graph, Node
from meshwright.program.ir import Op, Program


def find_dependence(graph: Graph) -> list[int]:
    """The inputs that each value depends on, by value number; bit `i` is input `i`."""
    bits = [0] * len(graph.values)
    for position, node in enumerate(graph.input_nodes):
        bits[node.outs[0][0]] = 1 << position
    _visit(graph, graph.program, bits)
    return bits


def members(bits: int) -> list[int]:
    """The positions in a bit set, in order."""
    found: list[int] = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def _visit(graph: Graph, program: Program, bits: list[int]) -> None:
    for op in program.ops:
        if op.bodies:
            _visit_region(graph, op, bits)
        else:
            _flow(graph.op_node[op], bits)


def _visit_region(graph: Graph, op: Op, bits: list[int]) -> None:
    """Propagate through a region's bodies until nothing changes."""
    wires = graph.wire_nodes[op]
    _flow_all(wires, bits)
    is_news = True
    while is_news:
        for body in op.bodies:
            _visit(graph, body, bits)
        is_news = _flow_all(wires, bits)


def _flow_all(nodes: tuple[Node, ...], bits: list[int]) -> bool:
    news = [_flow(node, bits) for node in nodes]  # all of them, whatever the first says
    return any(news)


def _flow(node: Node, bits: list[int]) -> bool:
    """Add the operands' bits to a node's results; true if a result changed."""
    found = 0
    for value, _ in node.ins:
        found |= bits[value]
    changed = False
    for value, _ in node.outs:
        if found & ~bits[value]:
            bits[value] |= found
            changed = True
    return changed

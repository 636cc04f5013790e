"""Accumulators of recurrent loops, whose iterations need results of the one before.

The backward pass of a recurrent network is such a loop: it carries the gradient of the
network's state, and adds up the gradients of its weights. A loop over microbatches is
not recurrent: its iterations are independent, except for accumulators and random keys.
"""

from meshwright.partitioner.propagate.graph import Graph, Node
from meshwright.partitioner.propagate.sum_routes import SumRoutes, is_carry
from meshwright.program.ir import Op
from meshwright.program.rules.factors import is_inexact


def recurrent_totals(graph: Graph, routes: SumRoutes) -> frozenset[int]:
    """Numbers of the results of scans that are accumulators of recurrent loops.

    What such a loop adds to the accumulator depends on another carried value, which is
    floating-point and no accumulator itself.
    """
    found: set[int] = set()
    for op, nodes in graph.wire_nodes.items():
        totals: list[Node] = []
        states: list[int] = []
        for node in filter(is_carry, nodes):
            start = graph.number[op.bodies[0].inputs[_position(node)]]
            if routes.accumulator_of(start) is node:
                totals.append(node)
            elif is_inexact(graph.values[start].dtype):
                states.append(start)
        if states and totals:
            found |= _totals_from(graph, op, states, totals)
    return frozenset(found)


def _position(node: Node) -> int:
    """The position of a carried value among the inputs of the loop's body."""
    assert node.wire is not None
    return node.wire.inputs[0][1]


def _totals_from(
    graph: Graph, op: Op, states: list[int], totals: list[Node]
) -> set[int]:
    """Results of accumulators to which a carried state flows within one iteration.

    states: numbers of the values carried into the body. totals: the nodes of the
        accumulators.
    """
    own = {node.index for node in graph.wire_nodes[op]}
    seen, todo, ends = set(states), list(states), set[int]()
    while todo:
        for index in graph.consumers[todo.pop()]:
            if index in own:
                ends.add(index)
                continue
            made = {value for value, _ in graph.nodes[index].outs} - seen
            seen |= made
            todo += made
    wires = [node.wire for node in totals if node.index in ends]
    results = [wire.result for wire in wires if wire is not None]
    return {graph.number[op.results[i]] for i in results if i is not None}

"""Conversion of a program's ops in order, each by the converter of its kind."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.features.deploy.onnx.converters import CONVERTERS, OpCall
from meshwright.features.deploy.onnx.graph import OnnxGraph
from meshwright.features.deploy.source.inexpressible import Inexpressible
from meshwright.program.ir import Program


def inline(graph: OnnxGraph, program: Program, inputs: Sequence[str]) -> list[str]:
    """Append the nodes of a program to a graph, and return the names of the outputs.

    program: all of its ops have a converter. inputs: names of its inputs in the graph.
    Raises `Inexpressible` with the op that ONNX cannot express.
    """
    scope = dict(graph.names)
    for value, name in zip(program.inputs, inputs, strict=True):
        graph.names[value], graph.shapes[name] = name, value.shape
    for value, array in program.constants.items():
        graph.names[value] = graph.constant(array, value.dtype)
    for op in program.ops:
        names = tuple(graph.read(atom) for atom in op.operands)
        try:
            results = CONVERTERS[op.kind](OpCall(graph, op, names))
        except Inexpressible as failure:  # perhaps of an op in a loop's body
            raise Inexpressible(str(failure), failure.op or op) from None
        results = [results] if isinstance(results, str) else list(results)
        for value, name in zip(op.results, results, strict=True):
            graph.names[value], graph.shapes[name] = name, value.shape
    outputs = [graph.read(atom) for atom in program.outputs]
    graph.names.clear()
    graph.names.update(scope)
    return outputs

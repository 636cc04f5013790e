"""Conversion of a program's ops in order, each by the converter of its kind."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.features.deploy.onnx.converters import OpCall, find_converter
from meshwright.features.deploy.onnx.graph import OnnxGraph
from meshwright.features.deploy.source.inexpressible import Inexpressible
from meshwright.program.ir import Op, Program


class OpInexpressible(Exception):
    """ONNX cannot express an op. op: the op. reason: why, as a phrase."""

    def __init__(self, op: Op, reason: str) -> None:
        super().__init__(reason)
        self.op = op
        self.reason = reason


def inline(graph: OnnxGraph, program: Program, inputs: Sequence[str]) -> list[str]:
    """Append the nodes of a program to a graph, and return the names of the outputs.

    inputs: names of the program's inputs in the graph.
    """
    scope = dict(graph.names)
    graph.names.update(zip(program.inputs, inputs, strict=True))
    for value, array in program.constants.items():
        graph.names[value] = graph.constant(array, value.dtype)
    for op in program.ops:
        names = tuple(graph.read(atom) for atom in op.operands)
        try:
            converter = find_converter(op.kind)
            if converter is None:
                raise Inexpressible("ONNX has no such op")
            made = converter(OpCall(graph, op, names))
        except Inexpressible as reason:
            raise OpInexpressible(op, str(reason)) from None
        results = [made] if isinstance(made, str) else list(made)
        graph.names.update(zip(op.results, results, strict=True))
    outputs = [graph.read(atom) for atom in program.outputs]
    graph.names.clear()
    graph.names.update(scope)
    return outputs

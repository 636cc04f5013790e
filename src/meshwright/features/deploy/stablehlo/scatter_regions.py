"""Repair of scatters in LiteRT models, so that LiteRT's interpreter runs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_KERNELS = {
    "ADD": "STABLEHLO_ADD",
    "MUL": "STABLEHLO_MULTIPLY",
    "MAXIMUM": "STABLEHLO_MAXIMUM",
    "MINIMUM": "STABLEHLO_MINIMUM",
}
"""By LiteRT's own op, the StableHLO op that its scatter kernel wants instead."""


def restore_scatter_regions(flatbuffer: bytes) -> bytes:
    """The model with StableHLO ops in the functions that its scatters combine by.

    A scatter calls a function of two scalars, such as their sum, where indices repeat.
    `litert-converter` writes LiteRT's own `ADD` into that function, but LiteRT's kernel
    of the scatter accepts only `STABLEHLO_ADD`.
    """
    schema: Any = import_module("ai_edge_litert.schema_py_generated")
    codes = schema.BuiltinOperator
    model = schema.ModelT.InitFromPackedBuf(flatbuffer, 0)
    scatters = [
        op
        for graph in model.subgraphs
        for op in graph.operators or ()
        if _kind(model, op) == codes.STABLEHLO_SCATTER
    ]
    if not scatters:
        return flatbuffer
    wanted = {getattr(codes, a): getattr(codes, b) for a, b in _KERNELS.items()}
    for scatter in scatters:
        region = model.subgraphs[scatter.builtinOptions2.updateComputationSubgraphIndex]
        for op in region.operators or ():
            kind = _kind(model, op)
            if kind in wanted:
                op.opcodeIndex = _code_index(schema, model, wanted[kind])
                op.builtinOptions = None
                op.builtinOptionsType = schema.BuiltinOptions.NONE
    builder = import_module("flatbuffers").Builder(len(flatbuffer))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _kind(model: Any, op: Any) -> int:
    return model.operatorCodes[op.opcodeIndex].builtinCode


def _code_index(schema: Any, model: Any, kind: int) -> int:
    """The position of an op's code in the model's table, to which it is added."""
    for index, code in enumerate(model.operatorCodes):
        if code.builtinCode == kind:
            return index
    code = schema.OperatorCodeT()
    code.builtinCode = kind
    code.deprecatedBuiltinCode = 127  # the code is in the wider field, builtinCode
    code.version = 1
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1

"""Repair of infinities in LiteRT models, which the converter makes finite."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from meshwright.program.ir import Literal, Program

_MOST = np.finfo(np.float32).max


def restore_infinities(flatbuffer: bytes, program: Program) -> bytes:
    """The model with infinite constants where the program has them.

    `litert-converter` writes the largest finite numbers instead. If the program has both,
    the two cannot be told apart, and the model stays as it is.
    """
    numbers = [np.asarray(array) for array in program.constants.values()]
    for op in program.walk():
        numbers += [np.asarray(a.value) for a in op.operands if isinstance(a, Literal)]
    floats = [x for x in numbers if x.dtype.kind == "f"]
    if not any(np.isinf(x).any() for x in floats):
        return flatbuffer
    if any((np.abs(x) == _MOST).any() for x in floats):
        return flatbuffer
    schema: Any = import_module("ai_edge_litert.schema_py_generated")
    model = schema.ModelT.InitFromPackedBuf(flatbuffer, 0)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            content = model.buffers[tensor.buffer].data
            if tensor.type != schema.TensorType.FLOAT32 or content is None:
                continue
            array = np.frombuffer(np.asarray(content, np.uint8).tobytes(), np.float32)
            infinite = np.where(
                np.abs(array) == _MOST, np.copysign(np.inf, array), array
            )
            changed = infinite.astype(np.float32)
            model.buffers[tensor.buffer].data = np.frombuffer(
                changed.tobytes(), np.uint8
            )
    builder = import_module("flatbuffers").Builder(len(flatbuffer))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())

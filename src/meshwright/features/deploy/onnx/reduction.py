"""Converters of reductions and cumulative sums."""

from __future__ import annotations

from functools import partial
from typing import Any

from meshwright.features.deploy.onnx.converters import OpCall, converts
from meshwright.features.deploy.source.inexpressible import Inexpressible

_REDUCED = {
    "reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin",
    "reduce_mean": "ReduceMean", "reduce_prod": "ReduceProd",
}  # fmt: skip


def _reduce(kind: str, call: OpCall) -> str:
    axes = call.graph.constant(list(call.params["axes"]))
    if not call.params["axes"]:
        return call.names[0]
    keepdims = int(call.params.get("keepdims", False))
    if call.dtype == "int32" and kind in ("ReduceSum", "ReduceProd"):
        # ONNX Runtime 1.32 sums int32 as float, and does not wrap around.
        wide = call.graph.cast(call.names[0], "int64")
        return call.graph.cast(call.node(kind, wide, axes, keepdims=keepdims), "int32")
    return call.node(kind, call.names[0], axes, keepdims=keepdims)


for _kind, _node in _REDUCED.items():
    converts(_kind)(partial(_reduce, _node))


@converts("reduce_and", "reduce_or")
def reduce_bools(call: OpCall) -> str:
    if call.dtype != "bool":
        raise Inexpressible("ONNX reduces bools by and and or, not integers")
    if not call.params["axes"]:  # to ONNX, no axes are all axes
        return call.names[0]
    numbers = call.graph.cast(call.names[0], "int32")
    kind = "ReduceMin" if call.op.kind == "reduce_and" else "ReduceMax"
    axes = call.graph.constant(list(call.params["axes"]))
    return call.graph.cast(call.node(kind, numbers, axes, keepdims=0), "bool")


@converts("argmax", "argmin")
def arg_extreme(call: OpCall) -> str:
    kind = "ArgMax" if call.op.kind == "argmax" else "ArgMin"
    (axis,) = call.params["axes"]
    name = call.names[0]
    if call.op.operands[0].dtype == "bool":
        name = call.graph.cast(name, "int32")
    place = call.node(kind, name, axis=axis, keepdims=0)
    return call.graph.cast(place, call.dtype)


@converts("cumsum")
def cumsum(call: OpCall) -> str:
    axis: Any = call.graph.constant(call.params["axis"])
    return call.node("CumSum", call.names[0], axis, reverse=int(call.params["reverse"]))

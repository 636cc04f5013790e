"""Converters of the ops that `fusions.py` makes."""

from __future__ import annotations

from meshwright.features.deploy.onnx.converters import OpCall, converts


@converts("gelu")
def gelu(call: OpCall) -> str:
    return call.node("Gelu", *call.names, approximate=call.params["approximate"])


@converts("hard_sigmoid")
def hard_sigmoid(call: OpCall) -> str:
    return call.node("HardSigmoid", *call.names, alpha=1 / 6, beta=0.5)


@converts("layer_norm")
def layer_norm(call: OpCall) -> str:
    x, *factors = call.names
    vectors = [call.graph.reshape(name, call.shape[-1:]) for name in factors]
    return call.node("LayerNormalization", x, *vectors, epsilon=call.params["epsilon"])


@converts("softmax", "log_softmax")
def softmax(call: OpCall) -> str:
    kind = "Softmax" if call.op.kind == "softmax" else "LogSoftmax"
    return call.node(kind, call.names[0], axis=-1)


@converts("relu")
def relu(call: OpCall) -> str:
    return call.node("Relu", *call.names)

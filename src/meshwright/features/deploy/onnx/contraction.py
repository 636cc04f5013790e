"""Converters of products, convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from meshwright.features.deploy.onnx.converters import OpCall, converts
from meshwright.features.deploy.onnx.movement import dilate
from meshwright.features.deploy.source.inexpressible import Inexpressible


@converts("dot_general")
def dot_general(call: OpCall) -> str:
    """A MatMul of operands as [batch, free, contracted], [batch, contracted, free]."""
    graph = call.graph
    (lc, rc), (lb, rb) = call.params["dimension_numbers"]
    left, right, *bias = call.op.operands
    names = [
        graph.cast(name, call.dtype) if operand.dtype != call.dtype else name
        for name, operand in zip(call.names, call.op.operands, strict=True)
    ]
    left_free = [d for d in range(len(left.shape)) if d not in (*lc, *lb)]
    right_free = [d for d in range(len(right.shape)) if d not in (*rc, *rb)]
    a = graph.transpose(names[0], (*lb, *left_free, *lc))
    b = graph.transpose(names[1], (*rb, *rc, *right_free))
    batch = [left.shape[d] for d in lb]
    inner = [left.shape[d] for d in lc]
    rows = [left.shape[d] for d in left_free]
    columns = [right.shape[d] for d in right_free]
    if not lb and len(lc) == 1 and rows and len(columns) == 1 and not bias:
        return call.node("MatMul", a, b)  # any number of rows
    if len(lc) != 1 or len(rows) != 1:
        a = graph.reshape(a, (*batch, math.prod(rows), math.prod(inner)))
    if len(lc) != 1 or len(columns) != 1:
        b = graph.reshape(b, (*batch, math.prod(inner), math.prod(columns)))
    product = call.node("MatMul", a, b)
    made = (*batch, math.prod(rows), math.prod(columns))
    graph.shapes[product] = made
    if bias:  # ONNX Runtime makes one Gemm of the two nodes
        product = call.node("Add", product, graph.reshape(names[2], made[-1:]))
        graph.shapes[product] = made
    return product if made == call.shape else graph.reshape(product, call.shape)


@converts("conv_general_dilated")
def conv_general_dilated(call: OpCall) -> str:
    graph, params = call.graph, call.params
    if params["batch_group_count"] != 1:
        raise Inexpressible("ONNX's Conv has no groups of the batch")
    numbers = params["dimension_numbers"]
    x = graph.transpose(call.names[0], numbers.lhs_spec)
    shape = [call.op.operands[0].shape[d] for d in numbers.lhs_spec]
    if _is_transposed(call):
        return _transposed_convolution(call, x)
    x = dilate(graph, x, shape, [1, 1, *params["lhs_dilation"]])
    w = graph.transpose(call.names[1], numbers.rhs_spec)
    spatial = [call.op.operands[1].shape[d] for d in numbers.rhs_spec][2:]
    padding = params["padding"]
    low, high = [p[0] for p in padding], [p[1] for p in padding]
    if min((*low, *high), default=0) < 0:
        raise Inexpressible("ONNX's Conv has no negative padding")
    out = call.node(
        "Conv",
        *(x, w, *_bias(call)),
        kernel_shape=spatial,
        strides=list(params["window_strides"]),
        dilations=list(params["rhs_dilation"]),
        pads=[*low, *high],
        group=params["feature_group_count"],
    )
    return graph.transpose(out, _inverse(numbers.out_spec))


def _is_transposed(call: OpCall) -> bool:
    """Whether ConvTranspose computes the convolution of a dilated input."""
    params, spec = call.params, call.params["dimension_numbers"].rhs_spec
    sizes = [call.op.operands[1].shape[d] for d in spec[2:]]
    reach = [(n - 1) * d for n, d in zip(sizes, params["rhs_dilation"], strict=True)]
    return (
        max(params["lhs_dilation"], default=1) > 1
        and set(params["window_strides"]) == {1}
        and params["feature_group_count"] == 1
        and call.names[1] in call.graph.constants
        and all(max(p) <= n for p, n in zip(params["padding"], reach, strict=True))
    )


def _transposed_convolution(call: OpCall, x: str) -> str:
    """A ConvTranspose node; its kernel is the convolution's, turned by half a turn."""
    graph, params = call.graph, call.params
    numbers = params["dimension_numbers"]
    first, second, *spatial = numbers.rhs_spec
    w = graph.transpose(call.names[1], (second, first, *spatial))
    turned = tuple(range(2, 2 + len(spatial)))
    w = graph.fold(w, lambda kernel: np.flip(kernel, turned))
    assert w is not None, "the kernel is a constant"
    sizes = [call.op.operands[1].shape[d] for d in spatial]
    reach = [(n - 1) * d for n, d in zip(sizes, params["rhs_dilation"], strict=True)]
    pairs = list(zip(reach, params["padding"], strict=True))
    pads = [n - p[side] for side in (0, 1) for n, p in pairs]
    out = call.node(
        "ConvTranspose",
        *(x, w, *_bias(call)),
        kernel_shape=sizes,
        strides=list(params["lhs_dilation"]),
        dilations=list(params["rhs_dilation"]),
        pads=pads,
    )
    return graph.transpose(out, _inverse(numbers.out_spec))


def _bias(call: OpCall) -> list[str]:
    """The name of a convolution's bias, as a vector, if it has one."""
    features = call.shape[call.params["dimension_numbers"].out_spec[1]]
    return [call.graph.reshape(name, (features,)) for name in call.names[2:]]


def _inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(i) for i in range(len(order))]


@converts("reduce_window_max", "reduce_window_sum", "reduce_window_min")
def pool(call: OpCall) -> str:
    """Pooling over dims that have windows; all other dims become channels."""
    graph, params = call.graph, call.params
    if set(params["base_dilation"]) - {1}:
        raise Inexpressible("ONNX's pooling has no dilated inputs")
    shape, sizes = call.op.operands[0].shape, params["window_dimensions"]
    windows = list(
        zip(
            sizes, params["window_strides"], params["padding"],
            params["window_dilation"], strict=True,
        )
    )  # fmt: skip
    spatial = [
        d
        for d, (size, stride, pad, _) in enumerate(windows)
        if (size, stride, tuple(pad)) != (1, 1, (0, 0))
    ]
    if not spatial:
        return call.names[0]
    rest = [d for d in range(len(shape)) if d not in spatial]
    order = [*rest, *spatial]
    x = graph.transpose(call.names[0], order)
    x = graph.reshape(
        x, (1, math.prod(shape[d] for d in rest), *(shape[d] for d in spatial))
    )
    x = _pooled(call, x, [windows[d] for d in spatial])
    x = graph.reshape(x, [call.shape[d] for d in order])
    return graph.transpose(x, _inverse(order))


def _pooled(
    call: OpCall, x: str, windows: Sequence[tuple[int, int, tuple[int, int], int]]
) -> str:
    attributes = {
        "kernel_shape": [w[0] for w in windows],
        "strides": [w[1] for w in windows],
        "pads": [w[2][0] for w in windows] + [w[2][1] for w in windows],
        "dilations": [w[3] for w in windows],
    }
    if call.op.kind == "reduce_window_max":
        return call.node("MaxPool", x, **attributes)
    if call.op.kind == "reduce_window_min":
        return call.node("Neg", call.node("MaxPool", call.node("Neg", x), **attributes))
    mean = call.node("AveragePool", x, count_include_pad=1, **attributes)
    count = call.graph.constant(math.prod(attributes["kernel_shape"]), call.dtype)
    return call.node("Mul", mean, count)

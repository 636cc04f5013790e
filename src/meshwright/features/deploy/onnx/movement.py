"""Converters of ops that move elements to places that do not depend on values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.features.deploy.onnx.converters import OpCall, converts
from meshwright.features.deploy.onnx.graph import OnnxGraph
from meshwright.features.deploy.source.inexpressible import Inexpressible


@converts("reshape", "squeeze", "expand_dims")
def reshape(call: OpCall) -> str:
    if call.params.get("dimensions") is not None and call.op.kind == "reshape":
        raise Inexpressible("ONNX's Reshape keeps the order of dims")
    return call.graph.reshape(call.names[0], call.shape)


@converts("broadcast_in_dim")
def broadcast_in_dim(call: OpCall) -> str:
    operand = call.op.operands[0]
    dims = call.params.get("broadcast_dimensions", call.params.get("dims"))
    shape = [1] * len(call.shape)
    for dim, size in zip(dims, operand.shape, strict=True):
        shape[dim] = size
    name = call.names[0]
    if tuple(shape) != operand.shape:
        name = call.graph.reshape(name, shape)
    return name if tuple(shape) == call.shape else call.graph.expand(name, call.shape)


@converts("transpose")
def transpose(call: OpCall) -> str:
    return call.graph.transpose(call.names[0], call.params["permutation"])


@converts("concatenate")
def concatenate(call: OpCall) -> str:
    axis = call.params.get("dimension", call.params.get("dim"))
    return call.node("Concat", *call.names, axis=int(axis))


@converts("split")
def split(call: OpCall) -> list[str]:
    sizes = call.graph.constant(list(call.params["sizes"]))
    return call.graph.nodes_of(
        "Split", [call.names[0], sizes], len(call.op.results), axis=call.params["axis"]
    )


@converts("slice")
def slice_(call: OpCall) -> str:
    params, shape = call.params, call.op.operands[0].shape
    if "dim" in params:  # the form of our own device programs
        starts, ends = [0] * len(shape), list(shape)
        starts[params["dim"]], ends[params["dim"]] = params["start"], params["limit"]
        return call.graph.slice(call.names[0], starts, ends, [1] * len(shape))
    steps = params["strides"] or [1] * len(shape)
    return call.graph.slice(
        call.names[0], params["start_indices"], params["limit_indices"], steps
    )


@converts("rev")
def rev(call: OpCall) -> str:
    dims = call.params.get("dimensions", call.params.get("dims"))
    rank = len(call.shape)
    turned = [d in dims for d in range(rank)]
    starts = [-1 if t else 0 for t in turned]
    ends = [-(2**62) if t else 2**62 for t in turned]
    return call.graph.slice(
        call.names[0], starts, ends, [-1 if t else 1 for t in turned]
    )


@converts("pad")
def pad(call: OpCall) -> str:
    graph, (x, value), shape = call.graph, call.names, call.op.operands[0].shape
    config = call.params.get("padding_config", call.params.get("config"))
    low, high, inner = ([each[i] for each in config] for i in range(3))
    x = dilate(graph, x, shape, [n + 1 for n in inner], value)
    sizes = [max(0, n + (n - 1) * i) for n, i in zip(shape, inner, strict=True)]
    grown = [max(0, n) for n in (*low, *high)]
    if any(grown):
        x = graph.node("Pad", [x, graph.constant(grown), value])
    if min((*low, *high), default=0) >= 0:
        return x
    starts = [max(0, -n) for n in low]
    triples = zip(sizes, low, high, strict=True)
    ends = [size + max(0, before) + after for size, before, after in triples]
    return graph.slice(x, starts, ends, [1] * len(ends))


def dilate(
    graph: OnnxGraph,
    name: str,
    shape: Sequence[int],
    factors: Sequence[int],
    value: str = "",
) -> str:
    """The name of an array with `factor - 1` fill values between neighbours."""
    sizes = list(shape)
    for dim, factor in enumerate(factors):
        if factor == 1:
            continue
        before, after = sizes[:dim], sizes[dim + 1 :]
        apart = graph.reshape(name, (*before, sizes[dim], 1, *after))
        rank = len(sizes) + 1
        pads = [0] * (2 * rank)
        pads[rank + dim + 1] = factor - 1
        rest = [value] if value else []
        apart = graph.node("Pad", [apart, graph.constant(pads), *rest])
        together = graph.reshape(apart, (*before, sizes[dim] * factor, *after))
        sizes[dim] = sizes[dim] * factor - (factor - 1)
        name = graph.slice(together, [0] * len(sizes), sizes, [1] * len(sizes))
    return name


@converts("iota")
def iota(call: OpCall) -> str:
    dim = call.params.get("dimension", call.params.get("dim"))
    along = [1] * len(call.shape)
    along[dim] = call.shape[dim]
    numbers = np.arange(call.shape[dim]).reshape(along)
    return call.graph.constant(np.broadcast_to(numbers, call.shape), call.dtype)


@converts("sort")
def sort(call: OpCall) -> list[str]:
    """A TopK node over all elements of the sorted dim, which gives their order.

    Equal elements stay in the order of their positions, as in a stable sort.
    """
    params, graph = call.params, call.graph
    axis, length = params["dimension"], call.shape[params["dimension"]]
    count = graph.constant([length])
    values, places = graph.nodes_of(
        "TopK", [call.names[0], count], 2, axis=axis, largest=0, sorted=1
    )
    others = [
        graph.node("GatherElements", [name, places], axis=axis)
        for name in call.names[1:]
    ]
    return [values, *others]


@converts("top_k")
def top_k(call: OpCall) -> list[str]:
    count = call.graph.constant([call.params["k"]])
    axis = call.params.get("axis", -1)
    values, places = call.graph.nodes_of("TopK", [call.names[0], count], 2, axis=axis)
    return [values, call.graph.cast(places, call.op.results[1].dtype)]


@converts("unstack")
def unstack(call: OpCall) -> list[str]:
    axis, count = call.params["axis"], len(call.op.results)
    parts = call.graph.nodes_of(
        "Split", [call.names[0]], count, axis=axis, num_outputs=count
    )
    return [call.graph.reshape(part, call.shape) for part in parts]

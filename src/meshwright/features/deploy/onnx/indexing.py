"""Converters of gathers, scatters, and slices whose start depends on values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.features.deploy.legal.windows import fill_value
from meshwright.features.deploy.onnx.converters import OpCall, converts


def _clamped(call: OpCall, indices: str, limits: Sequence[int], dtype: str) -> str:
    """Index vectors as int64, each component clamped to [0, limit].

    limits: one for each component, which the last dim of `indices` counts.
    """
    wide = indices if dtype == "int64" else call.graph.cast(indices, "int64")
    low, high = call.graph.constant(0), call.graph.constant(list(limits))
    return call.node("Min", call.node("Max", wide, low), high)


@converts("gather")
def gather(call: OpCall) -> str:
    """A Gather or GatherND of the operand with its indexed dims first.

    Other gathers than those of whole slices are legalized (`legal/windows.py`).
    """
    graph, numbers = call.graph, call.params["dimension_numbers"]
    operand, indices = call.op.operands
    batch = list(getattr(numbers, "operand_batching_dims", ()))
    indexed = list(numbers.start_index_map)
    sizes = call.params["slice_sizes"]
    kept = [d for d in range(len(operand.shape)) if d not in (*indexed, *batch)]
    order = [*batch, *indexed, *kept]
    limits = [operand.shape[d] - 1 for d in indexed]
    where = _clamped(call, call.names[1], limits, indices.dtype)
    x = graph.transpose(call.names[0], order)
    if len(indexed) == 1 and not batch:
        flat = graph.reshape(where, indices.shape[:-1])
        found = call.node("Gather", x, flat, axis=0)
    else:
        found = call.node("GatherND", x, where, batch_dims=len(batch))
    outer = list(indices.shape[:-1])
    # Dims of the result that are no offsets hold the indices' dims in order.
    collapsed = {*numbers.collapsed_slice_dims, *batch}
    offset_sizes = [size for d, size in enumerate(sizes) if d not in collapsed]
    found = graph.reshape(found, (*outer, *offset_sizes))
    found = _masked(call, found, limits, outer, len(offset_sizes))
    offsets = list(numbers.offset_dims)
    rest = [d for d in range(len(call.shape)) if d not in offsets]
    position = {d: i for i, d in enumerate([*rest, *offsets])}
    return graph.transpose(found, [position[d] for d in range(len(call.shape))])


def _masked(
    call: OpCall, found: str, limits: Sequence[int], outer: Sequence[int], inner: int
) -> str:
    """The gathered values, with the fill value where an index is out of bounds."""
    if "FILL" not in str(call.params["mode"]):
        return found
    graph = call.graph
    inside = _is_inside(call, graph.cast(call.names[1], "int64"), limits)
    inside = graph.reshape(inside, (*outer, *[1] * inner))
    return call.node(
        "Where", inside, found, graph.constant(fill_value(call.op), call.dtype)
    )


def _is_inside(call: OpCall, indices: str, limits: Sequence[int]) -> str:
    """Whether all components of each index vector are in [0, limit]; keeps the last dim."""
    graph = call.graph
    above = call.node("GreaterOrEqual", indices, graph.constant(0))
    below = call.node("LessOrEqual", indices, graph.constant(list(limits)))
    inside = graph.cast(call.node("And", above, below), "int32")
    last = graph.constant([len(call.op.operands[1].shape) - 1])
    return graph.cast(call.node("ReduceMin", inside, last, keepdims=1), "bool")


@converts("dynamic_slice")
def dynamic_slice(call: OpCall) -> str:
    x, *starts = call.names
    shape = call.op.operands[0].shape
    sizes = call.params.get("slice_sizes", call.params.get("sizes"))
    begin = _starts(call, starts, [n - s for n, s in zip(shape, sizes, strict=True)])
    end = call.node("Add", begin, call.graph.constant(list(sizes)))
    axes = call.graph.constant(list(range(len(shape))))
    return call.graph.reshape(call.node("Slice", x, begin, end, axes), sizes)


def _starts(call: OpCall, names: Sequence[str], limits: Sequence[int]) -> str:
    """Scalar starts, one per dim, as one int64 vector clamped to [0, limit]."""
    ones = [call.graph.reshape(call.graph.cast(name, "int64"), (1,)) for name in names]
    together = ones[0] if len(ones) == 1 else call.node("Concat", *ones, axis=0)
    return _clamped(call, together, limits, "int64")


@converts("dynamic_update_slice")
def dynamic_update_slice(call: OpCall) -> str:
    """A Where of the operand and the update, padded to the operand's shape."""
    x, update, *starts = call.names
    graph, sizes = call.graph, call.op.operands[1].shape
    if not call.shape:
        return update
    limits = [n - s for n, s in zip(call.shape, sizes, strict=True)]
    begin = _starts(call, starts, limits)
    pads = call.node(
        "Concat", begin, call.node("Sub", graph.constant(limits), begin), axis=0
    )
    mask = call.node("Pad", graph.constant(np.ones(sizes), "float32"), pads)
    is_bool = call.dtype == "bool"
    wide = graph.cast(update, "int32") if is_bool else update
    grown = call.node("Pad", wide, pads)
    base = graph.cast(x, "int32") if is_bool else x
    found = call.node("Where", graph.cast(mask, "bool"), grown, base)
    found = graph.reshape(found, call.shape)
    return graph.cast(found, "bool") if is_bool else found


_SCATTERED = {
    "scatter": "none", "scatter-add": "add", "scatter_add": "add", "scatter-mul": "mul",
    "scatter_mul": "mul", "scatter-min": "min", "scatter_min": "min",
    "scatter-max": "max", "scatter_max": "max",
}  # fmt: skip


@converts(*_SCATTERED)
def scatter(call: OpCall) -> str:
    """A ScatterND on the operand, transposed so that its indexed dims come first.

    The operand gets one more row, into which updates go that are out of bounds. The row
    is cut off again.
    """
    graph, numbers = call.graph, call.params["dimension_numbers"]
    operand, _, updates = call.op.operands
    indexed = list(numbers.scatter_dims_to_operand_dims)
    window = [d for d in range(len(operand.shape)) if d not in indexed]
    places = list(numbers.update_window_dims)
    outer = [d for d in range(len(updates.shape)) if d not in places]
    given = graph.transpose(call.names[2], [*outer, *places])
    order = [*indexed, *window]
    x = graph.transpose(call.names[0], order)
    spare = [0] * (2 * len(order))
    spare[len(order)] = 1
    x = call.node("Pad", x, graph.constant(spare))
    where = _or_spare(call, [operand.shape[d] for d in indexed])
    reduction = _SCATTERED[call.op.kind]
    x = call.node("ScatterND", x, where, given, reduction=reduction)
    shape = [operand.shape[d] for d in order]
    x = graph.slice(x, [0] * len(shape), shape, [1] * len(shape))
    return graph.transpose(x, [order.index(d) for d in range(len(order))])


def _or_spare(call: OpCall, sizes: Sequence[int]) -> str:
    """Index vectors as int64; those out of bounds name the extra last row."""
    graph = call.graph
    wide = graph.cast(call.names[1], "int64")
    limits = [n - 1 for n in sizes]
    if "CLIP" in str(call.params["mode"]):
        return _clamped(call, wide, limits, "int64")
    inside = _is_inside(call, wide, limits)
    away = graph.constant([sizes[0], *[0] * (len(sizes) - 1)])
    return call.node("Where", inside, wide, away)

"""Ops that become fewer: moves of dims of size 1, means, swapped products, biases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshwright.features.deploy.onnx.patterns import Index
from meshwright.program.ir import Atom, Op, Value

Rewrite = Callable[[Index, Op], Sequence[Op] | Atom | None]
"""A function of an op: the ops that replace it, or the atom that its result equals.

The last of the ops has the op's results. `None` if the op stays.
"""

_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_mean")


def _reshape(op: Op, operand: Atom) -> tuple[Op]:
    params = {"new_sizes": op.results[0].shape, "dimensions": None}
    return (Op("reshape", (operand,), op.results, params, source=op.source),)


def _transpose_of_ones(index: Index, op: Op) -> Sequence[Op] | None:
    """A reshape for a transpose that moves dims of size 1 only."""
    del index
    shape = op.operands[0].shape
    order: Any = op.params["permutation"]
    moved = [d for d in order if shape[d] != 1]
    return _reshape(op, op.operands[0]) if moved == sorted(moved) else None


def _transpose_of_product(index: Index, op: Op) -> Sequence[Op] | None:
    """A product of swapped operands for a transpose that moves columns before rows."""
    product = index.maker(op.operands[0], "dot_general")
    if product is None or not index.is_read_once(op.operands[0]):
        return None
    numbers: Any = product.params["dimension_numbers"]
    (left, right), (left_batch, right_batch) = numbers
    shape, batch = product.results[0].shape, len(left_batch)
    rows = len(product.operands[0].shape) - len(left) - batch
    order = list(map(int, op.params["permutation"]))
    swapped = [*range(batch), *range(batch + rows, len(shape))]
    swapped += range(batch, batch + rows)
    turned = [swapped.index(d) for d in order]
    made = tuple(shape[d] for d in swapped)
    if _inversions(turned, made) >= _inversions(order, shape):
        return None
    params = {
        **product.params,
        "dimension_numbers": ((right, left), (right_batch, left_batch)),
    }
    result = Value(made, op.results[0].dtype)
    operands = product.operands[::-1]
    first = replace(product, operands=operands, results=(result,), params=params)
    if not _inversions(turned, made):
        return (first, *_reshape(op, result))
    return (
        first,
        replace(op, operands=(result,), params={"permutation": tuple(turned)}),
    )


def _inversions(order: Sequence[int], shape: Sequence[int]) -> int:
    """Pairs of dims larger than 1 that a transpose puts in the opposite order."""
    moved = [d for d in order if shape[d] != 1]
    return sum(a > b for i, a in enumerate(moved) for b in moved[i:])


def _without_ones(index: Index, op: Op) -> Sequence[Op] | None:
    """A product without the free dims of size 1 that a reshape has added."""
    numbers: Any = op.params["dimension_numbers"]
    contracted, batch = numbers
    operands, inner, outer = list(op.operands), list(contracted), list(batch)
    before: list[Op] = []
    for side, atom in enumerate(op.operands):
        used = {*contracted[side], *batch[side]}
        kept = [d for d, n in enumerate(atom.shape) if n != 1 or d in used]
        added = index.maker(atom, "reshape", "broadcast_in_dim")
        if added is None or len(kept) in (len(atom.shape), len(used)):
            continue
        result = Value(tuple(atom.shape[d] for d in kept), atom.dtype)
        before += _reshape(replace(op, results=(result,)), atom)
        operands[side] = result
        inner[side] = tuple(kept.index(d) for d in contracted[side])
        outer[side] = tuple(kept.index(d) for d in batch[side])
    if not before:
        return None
    sizes = [operands[0].shape[d] for d in outer[0]]
    for side, atom in enumerate(operands):
        taken = {*inner[side], *outer[side]}
        sizes += [n for d, n in enumerate(atom.shape) if d not in taken]
    made = Value(tuple(sizes), op.results[0].dtype)
    params = {**op.params, "dimension_numbers": (tuple(inner), tuple(outer))}
    product = replace(op, operands=tuple(operands), results=(made,), params=params)
    return (*before, product, *_reshape(op, made))


def _minus_zero(index: Index, op: Op) -> Atom | None:
    x, y = op.operands
    return x if index.number(y) == 0 and x.shape == op.results[0].shape else None


def _relu(index: Index, op: Op) -> Sequence[Op] | None:
    """`relu` for the maximum with 0."""
    if op.results[0].dtype != "float32":
        return None
    for x, other in (op.operands, op.operands[::-1]):
        if index.number(other) == 0 and x.shape == op.results[0].shape:
            return (Op("relu", (x,), op.results, source=op.source),)
    return None


def _clamp(index: Index, op: Op) -> Sequence[Op] | None:
    """A clamp for the minimum of a number and a maximum."""
    for inner, high in (op.operands, op.operands[::-1]):
        largest = index.maker(inner, "max")
        if largest is None or high.shape or index.number(high) is None:
            continue
        for x, low in (largest.operands, largest.operands[::-1]):
            is_scalar = not low.shape and index.number(low) is not None
            if (
                is_scalar
                and index.is_read_once(inner)
                and x.shape == op.results[0].shape
            ):
                return (Op("clamp", (low, x, high), op.results, source=op.source),)
    return None


def _mean(index: Index, op: Op) -> Sequence[Op] | None:
    """The mean for a sum that is divided by the number of its terms."""
    total = index.maker(op.operands[0], "reduce_sum")
    if total is None or op.results[0].dtype != "float32":
        return None
    x, axes = total.operands[0], _axes(total)
    count = math.prod(x.shape[d] for d in axes)
    if index.number(op.operands[1]) != count or not axes:
        return None
    if op.results[0].shape != total.results[0].shape:
        return None
    return (replace(total, kind="reduce_mean", results=op.results),)


def _kept_dims(index: Index, op: Op) -> Sequence[Op] | None:
    """A reduction that keeps its dims, with size 1, for one whose dims are put back."""
    inner = index.maker(op.operands[0], *_REDUCTIONS)
    if inner is None or not index.is_read_once(op.operands[0]):
        return None
    axes = _axes(inner)
    kept = tuple(1 if d in axes else n for d, n in enumerate(inner.operands[0].shape))
    if inner.params.get("keepdims") or op.results[0].shape != kept:
        return None
    if op.kind == "broadcast_in_dim":
        dims: Any = op.params["broadcast_dimensions"]
        if list(map(int, dims)) != [d for d in range(len(kept)) if d not in axes]:
            return None
    return (
        replace(inner, results=op.results, params={**inner.params, "keepdims": True}),
    )


def _axes(op: Op) -> tuple[int, ...]:
    axes: Any = op.params["axes"]
    return tuple(map(int, axes))


def _quotient(index: Index, op: Op) -> Sequence[Op] | None:
    """A division by a root, for a product with its inverse."""
    for x, factor in (op.operands, op.operands[::-1]):
        root = index.maker(factor, "rsqrt")
        if root is not None and index.is_read_once(factor):
            return _divided(op, x, root)
        scaled = index.maker(factor, "mul")
        if scaled is None or not index.is_read_once(factor):
            continue
        for inverse, scale in (scaled.operands, scaled.operands[::-1]):
            root = index.maker(inverse, "rsqrt")
            if root is not None and x.shape == op.results[0].shape:
                made = Value(x.shape, x.dtype)
                first = _divided(replace(op, results=(made,)), x, root)
                return (*first, replace(op, operands=(made, scale)))
    return None


def _divided(op: Op, x: Atom, root: Op) -> tuple[Op, Op]:
    made = Value(root.results[0].shape, root.results[0].dtype)
    sqrt = replace(root, kind="sqrt", results=(made,))
    return sqrt, replace(op, kind="div", operands=(x, made))


def _conv_bias(index: Index, op: Op) -> Sequence[Op] | None:
    """A convolution with a bias, for one whose features get a number each."""
    for made, bias in (op.operands, op.operands[::-1]):
        conv = index.maker(made, "conv_general_dilated")
        if conv is None or not index.is_read_once(made) or len(conv.operands) == 3:
            continue
        numbers: Any = conv.params["dimension_numbers"]
        shape, feature = op.results[0].shape, numbers.out_spec[1]
        kept = tuple(n if d == feature else 1 for d, n in enumerate(shape))
        if bias.shape == kept and conv.results[0].shape == shape:
            return (replace(conv, operands=(*conv.operands, bias), results=op.results),)
    return None


def _product_bias(index: Index, op: Op) -> Sequence[Op] | None:
    """A product with a bias for each column."""
    for made, bias in (op.operands, op.operands[::-1]):
        product = index.maker(made, "dot_general")
        if product is None or not index.is_read_once(made):
            continue
        if len(product.operands) == 3:
            continue
        numbers: Any = product.params["dimension_numbers"]
        (left, _), (batch, _) = numbers
        shape, rows = op.results[0].shape, len(product.operands[0].shape) - len(left)
        kept = (*[1] * rows, *shape[rows:])
        is_bias = bias.shape == kept and product.results[0].shape == shape
        if is_bias and rows and not batch:
            operands = (*product.operands, bias)
            return (replace(product, operands=operands, results=op.results),)
    return None


MOVES: Mapping[str, Sequence[Rewrite]] = {
    "transpose": (_transpose_of_product, _transpose_of_ones),
    "dot_general": (_without_ones,),
    "sub": (_minus_zero,),
}
"""Rewrites before patterns are looked for, by kind of op."""

COMBINED: Mapping[str, Sequence[Rewrite]] = {
    "max": (_relu,), "min": (_clamp,), "div": (_mean,), "mul": (_quotient,),
    "broadcast_in_dim": (_kept_dims,), "reshape": (_kept_dims,),
    "add": (_conv_bias, _product_bias),
}  # fmt: skip
"""Rewrites of what no pattern has found, by kind of op."""

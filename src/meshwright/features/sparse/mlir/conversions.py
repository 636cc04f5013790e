"""Conversion of tensors: to dense storage, to another order of dims or shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from meshwright.features.sparse.mlir.emitter import Body, Emitter, Tensor, memory_type
from meshwright.features.sparse.mlir.scalars import MLIR_DTYPES
from meshwright.program.ir import Value
from meshwright.program.rules.rule import Dims

_TURNED = 8
"""Columns of a matrix that are turned at once: as many rows are written, which a cache of
8 ways holds."""


def dense_copy(code: Emitter, tensor: Tensor) -> Tensor:
    """A dense copy of a sparse tensor; a dense tensor itself."""
    if tensor.format is None:
        return tensor
    # As a sum over one term: MLIR's conversion, and a copy, leave gaps uninitialized
    # if the tensor was computed in the same function.
    plain = tuple(range(len(tensor.shape)))
    one = code.filled(Value((1,), tensor.dtype), 1.0)
    out = code.filled(Value(tensor.shape, tensor.dtype), 0.0)
    dims: Dims = tuple((d,) for d in plain)
    found = code.generic(
        [replace(tensor, order=plain), one],
        [dims, ((len(plain),),)],
        out,
        dims,
        multiply_add(code, tensor.dtype),
    )
    return replace(found, order=tensor.order)


def in_order(code: Emitter, tensor: Tensor) -> Tensor:
    """The dense tensor, stored with its dims in the order of the value's dims."""
    if tensor.is_plain:
        return tensor
    shape = tensor.value_shape
    out = Tensor.dense(shape, tensor.dtype)
    dims: Dims = tuple((d,) for d in range(len(shape)))
    return code.generic([tensor], [dims], out, dims, lambda given: given[0])


def grouped(code: Emitter, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor reshaped from many dims to one, or from one dim to many."""
    if tensor.shape == shape:
        return tensor
    made = Tensor("", shape, tensor.dtype, None, ())
    many = shape if len(tensor.shape) == 1 else tensor.shape
    groups = f"[{list(range(len(many)))}]" if many else "[]"
    kind = "expand" if many is shape else "collapse"
    sizes = f" output_shape {list(shape)}" if kind == "expand" else ""
    types = f"{code.type_of(tensor)} into {code.type_of(made)}"
    right = f"tensor.{kind}_shape {tensor.name} {groups}{sizes} : {types}"
    return replace(made, name=code.emit(right))


def first_dim(
    code: Emitter, tensor: Tensor, factors: Sequence[int], first: int
) -> Tensor:
    """The dense tensor as a matrix whose rows are one of its dims.

    factors: the factor of each dim of the tensor. first: the factor of the rows.
    """
    place = factors.index(first)
    extent, size = tensor.shape[place], math.prod(tensor.shape)
    width = size // max(extent, 1)
    tensor = replace(tensor, order=tuple(range(len(factors))))
    is_last = place == len(factors) - 1 and width > 1
    if place > 0 and width > 1 and not is_last:
        rest = [d for d in range(len(factors)) if d != place]
        out = Tensor.dense((extent, *(tensor.shape[d] for d in rest)), tensor.dtype)
        dims: Dims = tuple((d,) for d in range(len(factors)))
        placed: Dims = tuple((d,) for d in (place, *rest))
        tensor = code.generic([tensor], [dims], out, placed, lambda given: given[0])
    for shape in ((size,), (width, extent) if is_last else (extent, width)):
        tensor = grouped(code, tensor, shape)
    return turned(code, tensor) if is_last else tensor


def turned(code: Emitter, tensor: Tensor) -> Tensor:
    """A dense matrix with rows and columns exchanged, a few columns at a time."""
    height, width = tensor.shape
    turned = Tensor.dense((width, height), tensor.dtype)
    source, target = code.buffer(tensor), code.allocated(turned)

    def columns(first: str, _: Sequence[str]) -> Sequence[str]:
        after = code.emit(f"arith.addi {first}, {code.index(_TURNED)} : index")
        end = code.emit(f"arith.minui {after}, {code.index(width)} : index")

        def row(i: str, _: Sequence[str]) -> Sequence[str]:
            def element(j: str, _: Sequence[str]) -> Sequence[str]:
                place = f"{source}[{i}, {j}] : {memory_type(tensor)}"
                value = code.emit(f"memref.load {place}")
                place = f"{target}[{j}, {i}] : {memory_type(turned)}"
                code.lines.append(f"memref.store {value}, {place}")
                return ()

            code.loop(first, end, 1, (), element)
            return ()

        code.loop(code.index(0), code.index(height), 1, (), row)
        return ()

    code.loop(code.index(0), code.index(width), _TURNED, (), columns)
    return code.on_buffer(turned, target)


def multiply_add(code: Emitter, dtype: str) -> Body:
    """The body of a product: add the product of the elements to the result so far."""
    kind, suffix = MLIR_DTYPES[dtype], "f" if dtype.startswith("float") else "i"

    def body(given: Sequence[str]) -> str:
        *factors, total = given
        product = factors[0]
        for each in factors[1:]:
            product = code.emit(f"arith.mul{suffix} {product}, {each} : {kind}")
        return code.emit(f"arith.add{suffix} {total}, {product} : {kind}")

    return body

"""Conversion of tensors: to dense storage, to another order of dims or shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshwright.features.sparse.emitter import Body, Emitter, Tensor
from meshwright.features.sparse.scalars import MLIR_DTYPES
from meshwright.program.ir import Value
from meshwright.program.rules.rule import Dims


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
    shape = tuple(tensor.shape[t] for t in tensor.order)
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

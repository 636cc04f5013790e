"""What gather and scatter share: index vectors, counted from the chunk of a device.

An index vector stands in the last dim of `indices`; each of its components addresses
one dim of the operand. Where that dim is cut, every device counts the component from
the start of its own chunk; what then lies outside belongs to other devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.program.ir import Atom, Value
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.rule import OpCut

INT32_MAX = 2**31 - 1
"""Chunks are counted in int32: operands with longer dims are not cut by index."""

_WIDE = ("uint32", "int64", "uint64")


@dataclass(frozen=True, slots=True)
class IndexedDim:
    """One component of the index vector.

    extent: global size of the operand dim that it addresses.
    window: how many elements of that dim one index takes.
    factor: the dim's factor where the dim can be cut into chunks, else None.
    """

    extent: int
    window: int
    factor: int | None = None

    def chunk(self, cut: OpCut) -> int | None:
        """Elements per device where the dim is cut, else None."""
        if self.factor is None or not cut.is_cut(self.factor):
            return None
        return self.extent // cut.parts[self.factor]


def batch_positions(rank: int, window_dims: Sequence[int]) -> tuple[int, ...]:
    """Dims of a gather's result, a scatter's updates, that index batch dims make."""
    return tuple(d for d in range(rank) if d not in window_dims)


def is_wide(dtype: str) -> bool:
    """True where int32 does not hold every index of a dtype."""
    return dtype in _WIDE


def split_components(builder: Builder, indices: Value) -> list[Value]:
    """Components of the index vector, each [..., 1]."""
    last = len(indices.shape) - 1
    count = indices.shape[last]
    if count == 1:
        return [indices]
    return [builder.slice(indices, last, i, i + 1) for i in range(count)]


def join_components(builder: Builder, components: Sequence[Value]) -> Value:
    """The index vector of components; the inverse of `split_components`."""
    if len(components) == 1:
        return components[0]
    return builder.concatenate(components, len(components[0].shape) - 1)


def clamp(builder: Builder, x: Value, low: int, high: int) -> Value:
    """`x` moved into [low, high]; an unsigned `x` only from above."""
    if not x.dtype.startswith("u"):
        x = builder.binary("max", x, low)
    return builder.binary("min", x, high)


def clamp_int32(builder: Builder, x: Value, low: int, high: int) -> Value:
    """`x` of any integer dtype in [low, high], as int32."""
    if is_wide(x.dtype):
        return to_int32(builder, clamp(builder, x, low, high))
    return clamp(builder, to_int32(builder, x), low, high)


def to_int32(builder: Builder, x: Value) -> Value:
    """`x` as int32; indices beyond int32 wrap, as they do in `jax.lax.gather`."""
    return x if x.dtype == "int32" else builder.convert(x, "int32")


def chunk_start(builder: Builder, dim: IndexedDim, cut: OpCut) -> Value:
    """Where this device's chunk of a cut dim starts: an int32 scalar."""
    assert dim.factor is not None, "only a cut dim has chunks"
    chunk = dim.chunk(cut)
    assert chunk is not None, "only a cut dim has chunks"
    return builder.binary("mul", builder.axis_index(cut.axes[dim.factor]), chunk)


def constant(builder: Builder, like: Value, value: object) -> Value:
    """An array of one number, of the shape and dtype of `like`."""
    return builder.full(like.shape, value, like.dtype)


def all_true(builder: Builder, masks: Sequence[Atom]) -> Atom:
    """The conjunction of bool values of one shape."""
    found = masks[0]
    for mask in masks[1:]:
        found = builder.binary("and", found, mask)
    return found

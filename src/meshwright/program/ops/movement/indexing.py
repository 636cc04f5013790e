"""Index vectors of gathers and scatters, relative to the chunk of a device.

The last dim of `indices` is an index vector, each component of which addresses one dim of
the operand. If that dim is split, every device subtracts the start of its chunk; positions
outside of the chunk belong to other devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.program.ir import Atom, Value
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.rule import OpCut

INT32_MAX = 2**31 - 1
"""The largest extent of an indexed dim that can be split, since chunks use int32."""

_WIDE = ("uint32", "int64", "uint64")


@dataclass(frozen=True, slots=True)
class IndexedDim:
    """One component of the index vector.

    extent: global extent of the operand dim that it addresses.
    window: number of elements of that dim that one index takes.
    factor: the dim's factor if the dim can be split, else `None`.
    """

    extent: int
    window: int
    factor: int | None = None

    def chunk(self, cut: OpCut) -> int | None:
        """Elements per device if the dim is split, else `None`."""
        if self.factor is None or not cut.is_cut(self.factor):
            return None
        return self.extent // cut.parts[self.factor]


def batch_positions(rank: int, window_dims: Sequence[int]) -> tuple[int, ...]:
    """Dims of a gather's result, or a scatter's updates, that are batch dims of indices."""
    return tuple(d for d in range(rank) if d not in window_dims)


def is_wide(dtype: str) -> bool:
    """Whether the dtype has indices that int32 does not."""
    return dtype in _WIDE


def split_components(builder: Builder, indices: Value) -> list[Value]:
    """The components of the index vector, each [..., 1]."""
    last = len(indices.shape) - 1
    count = indices.shape[last]
    if count == 1:
        return [indices]
    return [builder.slice(indices, last, i, i + 1) for i in range(count)]


def join_components(builder: Builder, components: Sequence[Value]) -> Value:
    """The index vector with these components; the inverse of `split_components`."""
    if len(components) == 1:
        return components[0]
    return builder.concatenate(components, len(components[0].shape) - 1)


def clamp_int32(builder: Builder, x: Value, low: int, high: int) -> Value:
    """`x` of any integer dtype clamped to [low, high], as int32."""
    if is_wide(x.dtype):
        return to_int32(builder, builder.clamp(x, low, high))
    return builder.clamp(to_int32(builder, x), low, high)


def to_int32(builder: Builder, x: Value) -> Value:
    """`x` as int32; indices beyond int32 wrap, as they do in `jax.lax.gather`."""
    return x if x.dtype == "int32" else builder.convert(x, "int32")


def chunk_start(builder: Builder, dim: IndexedDim, cut: OpCut) -> Value:
    """The start of this device's chunk of a split dim, an int32 scalar."""
    assert dim.factor is not None, "only a cut dim has chunks"
    chunk = dim.chunk(cut)
    assert chunk is not None, "only a cut dim has chunks"
    return builder.binary("mul", builder.axis_index(cut.axes[dim.factor]), chunk)


def all_true(builder: Builder, masks: Sequence[Atom]) -> Atom:
    """The conjunction of bool values of one shape."""
    found = masks[0]
    for mask in masks[1:]:
        found = builder.binary("and", found, mask)
    return found

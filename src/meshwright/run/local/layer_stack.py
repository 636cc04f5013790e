"""Arrays whose elements along the leading dim are on different devices.

The weights of a loop over layers are one array. In a pipeline each layer is on the devices
of its stage, and JAX has no array whose parts are on meshes of different shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np


class LayerStack:
    """A stacked array as a sequence of its elements, each on the devices of its stage.

    It has the shape and dtype of the array, is a leaf of pytrees, and is an argument of
    the pipeline that returned it, which then moves nothing. NumPy and `jax.numpy` read it
    as an array, which is first brought together in the memory of this process.

    elements: arrays of shape [1, ...], or handles to arrays on a cluster.
    """

    def __init__(self, elements: Sequence[Any]) -> None:
        self.elements = tuple(elements)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole array."""
        return (len(self.elements), *self.elements[0].shape[1:])

    @property
    def dtype(self) -> Any:
        """The dtype of the array."""
        return self.elements[0].dtype

    @property
    def weak_type(self) -> bool:
        """Whether JAX may convert the array to another dtype."""
        return bool(getattr(self.elements[0], "weak_type", False))

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the whole array."""
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array."""
        return self.size * np.dtype(self.dtype).itemsize

    def __len__(self) -> int:
        return len(self.elements)

    def __iter__(self) -> Iterator[Any]:
        return (each[0] for each in self.elements)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int | np.integer):
            return self.elements[int(index)][0]
        return np.asarray(self)[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy  # the elements are always joined in new memory
        whole = np.concatenate(jax.device_get(self.elements))
        return np.asarray(whole, dtype)

    def __jax_array__(self) -> jax.Array:
        return jnp.asarray(np.asarray(self))

    def joined(self) -> jax.Array:
        """The whole array, if all elements are on the same devices or are traced."""
        return jnp.concatenate(self.elements)

    def is_deleted(self) -> bool:
        """Whether an element was donated to a call, or deleted."""
        return any(each.is_deleted() for each in self.elements)

    def block_until_ready(self) -> Self:
        """Wait until all elements are computed, and return this stack."""
        for each in self.elements:
            each.block_until_ready()
        return self

    def __repr__(self) -> str:
        return f"LayerStack({self.dtype}{list(self.shape)})"


def split_stacks(leaves: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    """Leaves whose stacks are replaced by their elements.

    counts: for each leaf, the number of elements; 0 for a leaf that stays as it is.
    """
    found: list[Any] = []
    for leaf, count in zip(leaves, counts, strict=True):
        if not count:
            found.append(whole_array(leaf))
        elif isinstance(leaf, LayerStack):
            found += leaf.elements
        else:
            array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
            found += [array[i : i + 1] for i in range(count)]
    return found


def whole_array(leaf: Any) -> Any:
    """A leaf, or the array that a stack of layers stands for."""
    return np.asarray(leaf) if isinstance(leaf, LayerStack) else leaf


def join_stacks(arrays: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    """The inverse of `split_stacks`: elements are joined to a `LayerStack`."""
    rest = iter(arrays)
    return [
        LayerStack([next(rest) for _ in range(count)]) if count else next(rest)
        for count in counts
    ]

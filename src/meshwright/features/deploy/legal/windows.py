"""Gathers, scatters and updates of slices, by windows or element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshwright.features.deploy.legal.rewrite import call_op
from meshwright.program.ir import Op

Replacement = Callable[..., Any] | None

_COMBINED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "scatter": (lambda old, new: new, lax.scatter),
    "scatter-add": (lax.add, lax.scatter_add), "scatter_add": (lax.add, lax.scatter_add),
    "scatter-mul": (lax.mul, lax.scatter_mul), "scatter_mul": (lax.mul, lax.scatter_mul),
    "scatter-min": (lax.min, lax.scatter_min), "scatter_min": (lax.min, lax.scatter_min),
    "scatter-max": (lax.max, lax.scatter_max), "scatter_max": (lax.max, lax.scatter_max),
}  # fmt: skip
"""By kind: how a window is combined with the array, and the op of elements."""

SCATTERS = tuple(_COMBINED)


def clamped_update(op: Op) -> Replacement:
    """`dynamic_update_slice` with clamped starts, behind a barrier.

    IREE 3.13 does not clamp, and overwrites an array while it reads the update from it.
    """
    limits = [
        n - m for n, m in zip(op.operands[0].shape, op.operands[1].shape, strict=True)
    ]

    def computed(x: Any, update: Any, *given: Any) -> Any:
        kept = lax.optimization_barrier(update)
        return lax.dynamic_update_slice(x, kept, _clamped(given, limits))

    return computed


def _clamped(starts: Sequence[Any], limits: Sequence[int]) -> list[Any]:
    """Starts of a window in [0, limit], one per dim."""
    return [
        jnp.clip(s, 0, min(n, np.iinfo(s.dtype).max))
        for s, n in zip(starts, limits, strict=True)
    ]


# -- scatters --------------------------------------------------------------------------


def scattered(op: Op) -> Replacement:
    """A scatter of parts of slices, or with batch dims, as one of elements.

    A single window becomes an update of a slice. Scatters of whole slices stay.
    """
    numbers: Any = op.params["dimension_numbers"]
    x, indices, updates = (a.shape for a in op.operands)
    indexed = list(numbers.scatter_dims_to_operand_dims)
    batching = list(getattr(numbers, "operand_batching_dims", ()))
    windows = _window(x, updates, numbers)
    is_whole = all(windows[d] == x[d] for d in range(len(x)) if d not in indexed)
    is_plain = is_whole and sorted(numbers.inserted_window_dims) == sorted(indexed)
    if not batching and int(np.prod(indices[:-1])) == 1:
        return lambda *xs: _one_window(op, windows, *xs)
    if is_plain and not batching:
        return None
    return lambda *xs: _elements(op, windows, *xs)


def _window(
    shape: Sequence[int], updates: Sequence[int], numbers: Any
) -> tuple[int, ...]:
    """The extents of a scatter's window along the dims of the array."""
    batching = getattr(numbers, "operand_batching_dims", ())
    missing = (*numbers.inserted_window_dims, *batching)
    sizes = iter([updates[d] for d in numbers.update_window_dims])
    return tuple(1 if d in missing else next(sizes) for d in range(len(shape)))


def _is_clipped(op: Op) -> bool:
    return "CLIP" in str(op.params["mode"])


def _one_window(
    op: Op, window: Sequence[int], x: Any, indices: Any, update: Any
) -> Any:
    numbers: Any = op.params["dimension_numbers"]
    vector = indices.reshape(-1)
    starts = [jnp.zeros((), indices.dtype) for _ in window]
    for i, d in enumerate(numbers.scatter_dims_to_operand_dims):
        starts[d] = vector[i]
    limits = [n - m for n, m in zip(x.shape, window, strict=True)]
    inside = jnp.asarray(True)
    for d in numbers.scatter_dims_to_operand_dims:
        inside = inside & (starts[d] >= 0) & (starts[d] <= limits[d])
    at = _clamped(starts, limits)
    old = lax.dynamic_slice(x, at, window)
    new = _COMBINED[op.kind][0](old, update.reshape(window))
    if not _is_clipped(op):
        new = jnp.where(inside, new, old)
    return lax.dynamic_update_slice(x, new, at)


def _elements(op: Op, window: Sequence[int], x: Any, indices: Any, update: Any) -> Any:
    numbers: Any = op.params["dimension_numbers"]
    places = numbers.update_window_dims
    outer = [d for d in range(update.ndim) if d not in places]
    update = update.transpose(*outer, *places)
    batching = getattr(numbers, "operand_batching_dims", ())
    kept = [
        d for d in range(x.ndim) if d not in (*numbers.inserted_window_dims, *batching)
    ]
    which = _Places(
        x.shape, tuple(window), kept, numbers.scatter_dims_to_operand_dims, batching,
        getattr(numbers, "scatter_indices_batching_dims", ()),
    )  # fmt: skip
    at, inside = which.of(indices)
    if not _is_clipped(op):
        at = [jnp.where(inside, i, n) for i, n in zip(at, x.shape, strict=True)]
    every = tuple(range(x.ndim))
    flat = [jnp.broadcast_to(i, update.shape).reshape(-1) for i in at]
    return _COMBINED[op.kind][1](
        x,
        _vectors(flat),
        update.reshape(-1),
        lax.ScatterDimensionNumbers((), every, every),
        mode=lax.GatherScatterMode.FILL_OR_DROP,
    )


class _Places:
    """Positions of the elements of windows in an array, per dim of the array.

    shape: of the array. window: extents of a window. kept: dims with an extent in the
        window's own shape. indexed: dims of the components of an index. batching: dims of
        the array that go along with dims `batched` of the indices.
    """

    def __init__(
        self,
        shape: Sequence[int],
        window: Sequence[int],
        kept: Sequence[int],
        indexed: Sequence[int],
        batching: Sequence[int],
        batched: Sequence[int],
    ) -> None:
        self.shape, self.window, self.kept = shape, window, kept
        self.indexed, self.batching, self.batched = indexed, batching, batched

    def of(self, indices: Any) -> tuple[list[Any], Any]:
        """Positions along each dim, as int32, and whether each window is in the array.

        Each broadcasts to the batch dims of the indices, followed by the window.
        """
        indices = indices.astype(jnp.int32)
        outer, inner = indices.shape[:-1], [self.window[d] for d in self.kept]
        rank = len(outer) + len(inner)
        inside = jnp.asarray(True)
        found: list[Any] = []
        for d, size in enumerate(self.shape):
            at: Any = jnp.zeros((1,) * rank, jnp.int32)
            if d in self.indexed:
                start = indices[..., list(self.indexed).index(d)]
                start = start.reshape(*outer, *[1] * len(inner))
                limit = size - self.window[d]
                inside = inside & (start >= 0) & (start <= limit)
                at = at + jnp.clip(start, 0, limit)
            if d in self.batching:
                dim = self.batched[list(self.batching).index(d)]
                at = at + _along(dim, rank, size)
            if d in self.kept and self.window[d] > 1:
                at = at + _along(
                    len(outer) + list(self.kept).index(d), rank, self.window[d]
                )
            found.append(at)
        return found, inside


def _vectors(components: Sequence[Any]) -> Any:
    """Index vectors along a new last dim, from their components."""
    rank = components[0].ndim
    return lax.concatenate([lax.expand_dims(c, (rank,)) for c in components], rank)


def _along(dim: int, rank: int, size: int) -> Any:
    """0, 1, 2, ... along one dim, of an array whose other dims have size 1."""
    shape = [1] * rank
    shape[dim] = size
    return jnp.asarray(np.arange(size, dtype=np.int32).reshape(shape))


# -- gathers ---------------------------------------------------------------------------


def gathered(op: Op) -> Replacement:
    """A gather of parts of slices as one slice, or element by element."""
    numbers: Any = op.params["dimension_numbers"]
    sizes: Any = op.params["slice_sizes"]
    x, indices = (a.shape for a in op.operands)
    indexed = list(numbers.start_index_map)
    batching = list(getattr(numbers, "operand_batching_dims", ()))
    batched = list(getattr(numbers, "start_indices_batching_dims", ()))
    fixed = (*indexed, *batching)
    is_plain = all(sizes[d] == (1 if d in fixed else n) for d, n in enumerate(x))
    if is_plain and batched == list(range(len(batched))):
        return None
    collapsed = (*numbers.collapsed_slice_dims, *batching)
    kept = [d for d in range(len(x)) if d not in collapsed]
    which = _Places(x, sizes, kept, indexed, batching, batched)
    outer, inner = list(indices[:-1]), [sizes[d] for d in kept]

    def computed(array: Any, index: Any) -> Any:
        at, inside = which.of(index)
        every = [jnp.broadcast_to(i, (*outer, *inner)) for i in at]
        rank = len(x)
        found = lax.gather(
            array,
            _vectors(every),
            lax.GatherDimensionNumbers((), tuple(range(rank)), tuple(range(rank))),
            (1,) * rank,
            mode=lax.GatherScatterMode.CLIP,
        )
        if "FILL" in str(op.params["mode"]):
            fill = jnp.asarray(fill_value(op), found.dtype)
            found = jnp.where(jnp.broadcast_to(inside, found.shape), found, fill)
        offsets = list(numbers.offset_dims)
        rest = [d for d in range(found.ndim) if d not in offsets]
        position = {d: i for i, d in enumerate([*rest, *offsets])}
        return found.transpose([position[d] for d in range(found.ndim)])

    return computed


def signed_indices(op: Op) -> Replacement:
    """A gather whose indices are int32, for targets that cannot clamp unsigned ones."""
    if op.operands[1].dtype != "uint32":
        return None
    return lambda x, indices: call_op(op, x, indices.astype(jnp.int32))


def fill_value(op: Op) -> Any:
    """What a gather returns for indices out of bounds."""
    value, dtype = op.params.get("fill_value"), op.results[0].dtype
    if value is not None:
        return value
    if "float" in dtype:
        return np.nan
    if dtype == "bool":
        return True
    info = np.iinfo(dtype)
    return info.max if dtype.startswith("u") else info.min

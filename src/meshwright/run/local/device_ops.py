"""JAX functions that execute ops of device programs that are no JAX primitives.

The kinds of these ops are those of `rules.builder`: names of `jax.lax` functions, with
parameters of our own, and the collectives. All functions run inside `jax.shard_map`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from meshwright.jax_private import move_words, settle_slice
from meshwright.program.ops.movement.joined_slices import Join
from meshwright.run.local.random_window import random_bits_window


def axis_index(axes: tuple[str, ...]) -> Any:
    """This device's int32 position along `axes`, which are ordered major to minor."""
    position = jnp.int32(0)
    for axis in axes:
        position = position * lax.axis_size(axis) + lax.axis_index(axis)
    return position.astype(jnp.int32)


def all_slice(
    x: Any,
    dim: int,
    axes: tuple[str, ...],
    offset: int = 0,
    piece: tuple[int, int] = (0, 1),
) -> Any:
    """One chunk along `dim` of a value that is replicated along `axes`.

    offset: distance along `axes` from this device to the one whose chunk is returned.
    piece: (index, number) if only one of several equal pieces of the chunk is wanted.
    """
    count, (index, pieces) = math.prod(lax.axis_size(a) for a in axes), piece
    position = axis_index(axes)
    if offset % count:
        position = lax.rem(position + offset % count, count)
    size = x.shape[dim] // (count * pieces)
    start = (position * pieces + index) * size
    return settle_slice(lax.dynamic_slice_in_dim(x, start, size, dim))


def all_gather(x: Any, dim: int, axes: tuple[str, ...]) -> Any:
    """The chunks of all devices along `axes`, concatenated along `dim`."""
    return move_words(lambda y: lax.all_gather(y, axes, axis=dim, tiled=True), x)


def all_reduce(x: Any, axes: tuple[str, ...], monoid: str) -> Any:
    """The reduction over all devices along `axes`, replicated on each of them."""
    if monoid in _REDUCERS:
        return _REDUCERS[monoid](x, axes)
    return _reduce(lax.all_gather(x, axes), [0], monoid)  # no all-reduce of this kind


def reduce_scatter(x: Any, dim: int, axes: tuple[str, ...], monoid: str) -> Any:
    """This device's chunk along `dim` of the sum over `axes`."""
    assert monoid == "sum", f"no reduce-scatter for {monoid}"
    if x.dtype == jnp.bool_ or x.dtype.itemsize == 1:
        return all_slice(_sum(x, axes), dim, axes)
    if jnp.iscomplexobj(x):  # the TPU compiler refuses complex reduce-scatters
        parts = jnp.stack([jnp.real(x), jnp.imag(x)])
        return lax.complex(*reduce_scatter(parts, dim + 1, axes, monoid))
    return lax.psum_scatter(x, axes, scatter_dimension=dim, tiled=True)


def all_to_all(x: Any, gather: int, split: int, axes: tuple[str, ...]) -> Any:
    """Exchange chunks so that `axes` split dim `split` instead of dim `gather`."""
    return move_words(lambda y: lax.all_to_all(y, axes, split, gather, tiled=True), x)


def permute(x: Any, axes: tuple[str, ...], pairs: Any) -> Any:
    """The value of another device along `axes`; zeros if no device sends one.

    pairs: positions along `axes` of each sender and receiver.
    """
    return move_words(lambda y: lax.ppermute(y, axes, list(pairs)), x)


def _sum(x: Any, axes: tuple[str, ...]) -> Any:
    if x.dtype == jnp.bool_:
        return lax.psum(x.astype(jnp.int32), axes) > 0
    if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize == 1:
        return lax.psum(x.astype(jnp.float32), axes).astype(x.dtype)
    return lax.psum(x, axes)


def _reduce(x: Any, dims: Sequence[int], monoid: str) -> Any:
    """Reduce dims of this device's value, without communication.

    monoid: the reduction, such as "sum" or "max".
    """
    return getattr(lax, f"reduce_{monoid}")(x, dims)


def _extreme(
    reduce: Callable[..., Any], nan_as: str
) -> Callable[[Any, tuple[str, ...]], Any]:
    """`pmax` or `pmin` over devices that propagates NaN, which XLA's does not on CPU.

    Floats are compared as integers of the same order, in which NaN is the extreme
    value.

    nan_as: "max" or "min", the integer that stands for NaN.
    """

    def run(x: Any, axes: tuple[str, ...]) -> Any:
        if x.dtype == jnp.bool_:
            return reduce(x.astype(jnp.int32), axes).astype(jnp.bool_)
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return reduce(x, axes)
        bits = jnp.iinfo(f"int{8 * x.dtype.itemsize}")
        key = _flip(lax.bitcast_convert_type(x, bits.dtype))
        key = jnp.where(jnp.isnan(x), getattr(bits, nan_as), key)
        return lax.bitcast_convert_type(_flip(reduce(key, axes)), x.dtype)

    return run


def _flip(key: Any) -> Any:
    """Map between a float's bits and an integer of the same order; its own inverse."""
    return key ^ ((key >> (8 * key.dtype.itemsize - 1)) & jnp.iinfo(key.dtype).max)


_REDUCERS: dict[str, Callable[[Any, tuple[str, ...]], Any]] = {
    "sum": _sum,
    "max": _extreme(lax.pmax, "max"),
    "min": _extreme(lax.pmin, "min"),
}


def _joined_slices(*operands: Any, join: Join, fill: Any) -> Any:
    """Slices of arrays joined along one dim; gaps hold `fill`, or the last operand."""
    arrays, rest = operands[: len(join.extents)], operands[len(join.extents) :]
    shape = list(arrays[0].shape)
    shape[join.dim] = join.size
    value = jnp.asarray(rest[0] if rest else fill, arrays[0].dtype)
    found = jnp.broadcast_to(value, shape)
    for piece in join.pieces:
        x = arrays[piece.operand]
        stop = piece.start + piece.length
        part = lax.slice_in_dim(x, piece.start, stop, axis=join.dim)
        found = lax.dynamic_update_slice_in_dim(found, part, piece.at, join.dim)
    return found


def _select_n(which: Any, *cases: Any) -> Any:
    shape = next((c.shape for c in cases if jnp.ndim(c)), ())
    return lax.select_n(which, *(jnp.broadcast_to(c, shape) for c in cases))


def _broadcasting(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an elementwise function, so that it broadcasts scalar operands."""

    def run(*operands: Any) -> Any:
        shape = jnp.broadcast_shapes(*(jnp.shape(o) for o in operands))
        return fn(*(jnp.broadcast_to(o, shape) for o in operands))

    return run


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "axis_index": axis_index,
    "all_slice": all_slice,
    "all_gather": all_gather,
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "permute": permute,
    "random_bits_window": random_bits_window,
    "broadcast_in_dim": lambda x, shape, dims: lax.broadcast_in_dim(x, shape, dims),
    "joined_slices": _joined_slices,
    "slice": lambda x, dim, start, limit: lax.slice_in_dim(x, start, limit, axis=dim),
    "columns": lambda x, sizes: list(lax.split(x, sizes, 1)),
    "sort": lambda keys, x, dimension: list(lax.sort((keys, x), dimension, num_keys=1)),
    "select_n": _select_n,
    "reduce": _reduce,
    "iota": lambda shape, dim, dtype: lax.broadcasted_iota(
        jnp.dtype(dtype), shape, dim
    ),
    "convert_element_type": lambda x, new_dtype: lax.convert_element_type(
        x, jnp.dtype(new_dtype)
    ),
    "reshape": lambda x, shape: lax.reshape(x, shape),
    "transpose": lambda x, permutation: lax.transpose(x, permutation),
    "concatenate": lambda *xs, dim: lax.concatenate(xs, dim),
    "dynamic_slice": lambda x, *starts, sizes: lax.dynamic_slice(x, starts, sizes),
    "dynamic_update_slice": lambda x, u, *starts: lax.dynamic_update_slice(
        x, u, starts
    ),
    "pad": lambda x, value, config: lax.pad(x, value, config),
    "rev": lambda x, dims: lax.rev(x, dims),
    "optimization_barrier": lambda x, *after: lax.optimization_barrier((x, *after))[0],
    "layout_constraint": lambda x, major_to_minor: with_layout_constraint(
        x, Layout(major_to_minor)
    ),
}
"""The function that executes each kind of op in a device program.

Elementwise kinds that are missing here are functions of `jax.lax` of the same name.
"""

_BITWISE = ("not", "and", "or", "xor")


def function_of(kind: str) -> Callable[..., Any]:
    """The function that executes an op of this kind in a device program.

    Raises `KeyError` for unknown kinds.
    """
    if kind in _FUNCTIONS:
        return _FUNCTIONS[kind]
    fn = getattr(lax, f"bitwise_{kind}" if kind in _BITWISE else kind, None)
    if fn is None:
        raise KeyError(f"no function executes device op {kind!r}")
    return _broadcasting(fn)


def _fft(operands: list[Any], params: Any) -> list[Any]:
    """Run a Fourier transform; on CPU its operands and results are row-major.

    XLA for CPU fails if a collective next to the transform asks for another layout.
    """

    def pinned(x: Any) -> Any:
        return with_layout_constraint(x, Layout(tuple(range(x.ndim))))

    result = lax.fft_p.bind(*operands, **params)
    return [lax.platform_dependent(result, cpu=pinned, default=lambda x: x)]


PRIMITIVES: dict[str, Callable[[list[Any], Any], list[Any]]] = {
    "fft": _fft,
    **dict.fromkeys(
        ("tag", "sharding_constraint", "reshard", "pvary", "pbroadcast"),
        lambda operands, params: operands,
    ),
    "psum_invariant": lambda xs, params: [lax.psum(x, params["axes"]) for x in xs],
    "all_gather_invariant": lambda xs, params: [
        lax.all_gather(
            x,
            params["axis_name"],
            axis=params["all_gather_dimension"],
            tiled=params["tiled"],
        )
        for x in xs
    ],
}
"""Functions that replace JAX primitives which a device program cannot run as they are.

They are annotations that partitioning has resolved, typed collectives of a user's own
`shard_map`, and ffts, which XLA fails on in some layouts.
"""

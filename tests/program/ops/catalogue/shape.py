"""Primitives that move elements about, in every form of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(0)
VECTOR = _RNG.standard_normal(8).astype(np.float32)
MATRIX = _RNG.standard_normal((8, 4)).astype(np.float32)
CUBE = _RNG.standard_normal((4, 8, 2)).astype(np.float32)
ODD = _RNG.standard_normal((3, 8)).astype(np.float32)
UNIT = _RNG.standard_normal((1, 8, 1)).astype(np.float32)
INT = _RNG.integers(-9, 9, (8, 4)).astype(np.int32)
BOOL = MATRIX > 0
LAST = np.int32(6)
WILD = np.array([-5, 100, 3], np.int32)


def _grad(fn: Callable) -> Callable:
    """The gradient of a weighted sum of the results by the first argument."""

    def loss(x, *rest):
        leaves = jax.tree.leaves(fn(x, *rest))
        return sum(jnp.sum(jnp.sin(y + i)) for i, y in enumerate(leaves))

    return jax.grad(loss)


def _with_grad(name: str, fn: Callable, *args) -> list[Example]:
    return [Example(name, fn, args), Example(f"{name} grad", _grad(fn), args)]


def _broadcasts(x, unit):
    placed = lax.broadcast_in_dim(x, (4, 8, 2), (1,))
    return (
        placed,
        lax.broadcast_in_dim(unit, (4, 8, 3), (0, 1, 2)),
        jnp.zeros((8, 2)) + 1,
    )


def _reshapes(x):
    """x of 8, 4: split, merged, split and merged across a border, with ones."""
    shapes = [(32,), (2, 4, 4), (4, 2, 2, 2), (2, 16), (16, 2), (1, 8, 1, 4)]
    return [lax.reshape(x, shape) for shape in shapes]


def _odd_reshapes(x):
    """x of 3, 8: dims that share a divisor, or nothing."""
    return lax.reshape(x, (2, 12)), lax.reshape(x, (6, 4)), lax.reshape(x, (24, 1))


def _divisor_reshape(x):
    """4, 6 to 6, 4: only the major halves of both correspond."""
    return lax.reshape(x.reshape(24)[:24].reshape(4, 6), (6, 4))


def _ordered_reshape(x):
    return lax.reshape(x, (8, 8), dimensions=(1, 0, 2))


def _transposes(x):
    return lax.transpose(x, (1, 0, 2)), lax.transpose(x, (2, 1, 0))


def _squeezes(x):
    return lax.squeeze(x, (0,)), lax.squeeze(x, (0, 2)), lax.expand_dims(x, (1,))


def _reversals(x):
    return lax.rev(x, (0,)), lax.rev(x, (0, 1))


def _pads(x, value):
    low = lax.pad(x, jnp.float32(0), ((0, 0, 0), (1, 2, 1)))
    cropped = lax.pad(x, value, ((-2, 0, 0), (0, 0, 0)))
    up = lax.pad(x, value, ((1, -1, 0), (0, 0, 0)))
    down = lax.pad(x, jnp.float32(0), ((-1, 1, 0), (1, -1, 0)))
    return low, cropped, up, down, lax.pad(x, value, ((0, 0, 0), (0, 0, 0)))


def _padded_sum(x, value):
    total = jnp.sum(x, 0)
    return lax.pad(total, jnp.float32(0), ((1, 1, 0),)), lax.pad(
        total, value, ((1, 1, 0),)
    )


def _concatenations(x, y):
    return lax.concatenate([x, y, x], 1), lax.concatenate([x], 0), jnp.stack([x, y], 1)


def _summed_parts(x, y):
    """Partial sums, of both operands and of one."""
    a, b = jnp.sum(x, 0), jnp.sum(y, 0)
    return lax.concatenate([a, b], 0), lax.concatenate([a, y[0]], 0), jnp.stack([a, b])


def _splits(x):
    alone = lax.split(x, (8,), 0)
    return lax.split(x, (1, 3), 1), alone, [row * 2 for row in jnp.unstack(x, axis=1)]


def _tiles(x):
    return jnp.tile(x, (1, 3)), jnp.tile(x, (4, 1)), jnp.tile(x[:, :1], (2, 4))


def _slices(x):
    part = lax.slice(x, (0, 1), (8, 3))
    return part, lax.slice(x, (0, 0), (8, 4), (1, 3)), lax.slice(x, (2, 0), (6, 4))


def _dynamic(sizes, x, i):
    return lax.dynamic_slice(x, (i, i), sizes)


def _dynamic_wild(x, starts):
    """Starts out of bounds on either side, small dtypes, literals."""
    out = [lax.dynamic_slice(x, (starts[k], jnp.int32(0)), (3, 4)) for k in range(3)]
    small = lax.dynamic_slice(x, (starts[1].astype(jnp.uint8), np.uint8(2)), (5, 1))
    return *out, small, lax.dynamic_slice(x, (jnp.int32(5), jnp.int32(9)), (4, 2))


def _raw_slice(x, i):
    """The primitive itself, which does not count negative starts from the end."""
    return lax.dynamic_slice_p.bind(x, i, i, slice_sizes=(2, 3))


def _update(size, x, y, i):
    return lax.dynamic_update_slice(x, y[:size], (i, i))


def _raw_update(x, i):
    return lax.dynamic_update_slice_p.bind(x, x[:3, :2] * 2, i, i - 2)


def _update_wild(x, starts):
    y = x[:3, :3] * 2
    return [
        lax.dynamic_update_slice(x, y, (starts[k], starts[2 - k])) for k in range(3)
    ]


def _cache(cache, rows):
    """A key-value cache that a decode loop fills, and reads."""

    def step(carry, row):
        filled, i = carry
        filled = lax.dynamic_update_slice(filled, row[None], (i, jnp.int32(0)))
        return (filled, i + 1), jnp.sum(filled * row)

    return lax.scan(step, (cache, jnp.int32(2)), rows)


def _iotas(dtype):
    return lax.broadcasted_iota(dtype, (8, 4), 0), lax.broadcasted_iota(
        dtype, (3, 8), 1
    )


def _counted(x):
    return [
        x + t.astype(jnp.float32)
        for t in (_iotas(jnp.int32)[0], _iotas(jnp.bfloat16)[0])
    ]


def _large_iota():
    """Integers beyond those that the dtype holds exactly, as one device rounds them."""
    return (
        lax.iota(jnp.bfloat16, 1024),
        lax.iota(jnp.float16, 8),
        lax.iota(jnp.uint8, 8),
    )


def _eye(x):
    return x @ jnp.eye(4), jnp.tril(x), jnp.where(jnp.eye(8, 4, dtype=bool), x, 0)


def _empties(x):
    """What stands in the memory is not compared."""
    return x + 0 * lax.empty((8, 4), jnp.float32)


def _by_platform(x):
    """A choice by platform counts as one by an index."""
    return lax.platform_dependent(x, cpu=jnp.sin, default=jnp.sin)


def _keys(seeds):
    """Arrays of typed keys move like any other."""
    keys = jax.vmap(jax.random.key)(seeds)
    turned = lax.rev(keys, (0,)).reshape(2, 4).T
    taken = lax.dynamic_slice(keys, (seeds[3] % 5,), (2,))
    written = lax.dynamic_update_slice(keys, taken, (seeds[2] % 5,))
    parts = [turned.reshape(8), taken, written, jnp.concatenate([keys, keys])]
    return [jax.random.key_data(k) for k in parts]


EXAMPLES = [
    *_with_grad("broadcasts", _broadcasts, VECTOR, UNIT),
    *_with_grad("reshapes", _reshapes, MATRIX),
    *_with_grad("odd reshapes", _odd_reshapes, ODD),
    Example("reshape with a common divisor", _divisor_reshape, (ODD,)),
    Example("reshape in another order", _ordered_reshape, (CUBE,)),
    *_with_grad("transposes", _transposes, CUBE),
    *_with_grad("squeezes", _squeezes, UNIT),
    *_with_grad("reversals", _reversals, MATRIX),
    Example("reversed bools", partial(lax.rev, dimensions=(0, 1)), (BOOL,)),
    *_with_grad("pads", _pads, MATRIX, np.float32(2)),
    Example("padded sums", _padded_sum, (MATRIX, np.float32(2))),
    *_with_grad("concatenations", _concatenations, MATRIX, MATRIX[::-1]),
    Example("concatenated sums", _summed_parts, (MATRIX, MATRIX[::-1])),
    *_with_grad("splits", _splits, MATRIX),
    *_with_grad("tiles", _tiles, MATRIX),
    *_with_grad("slices", _slices, MATRIX),
    *_with_grad("dynamic slice of rows", partial(_dynamic, (3, 4)), MATRIX, LAST),
    *_with_grad("dynamic slice of one", partial(_dynamic, (1, 4)), MATRIX, np.int32(3)),
    *_with_grad(
        "dynamic slice of both", partial(_dynamic, (7, 3)), MATRIX, np.int32(1)
    ),
    Example("dynamic slice of integers", partial(_dynamic, (3, 2)), (INT, np.int32(2))),
    Example("dynamic slice of bools", partial(_dynamic, (3, 2)), (BOOL, np.int32(2))),
    Example("dynamic slices out of bounds", _dynamic_wild, (MATRIX, WILD)),
    Example("dynamic slice before the start", _raw_slice, (MATRIX, np.int32(-3))),
    *_with_grad("update of rows", partial(_update, 3), MATRIX, MATRIX * 2, np.int32(3)),
    *_with_grad("update of one", partial(_update, 1), MATRIX, MATRIX * 2, LAST),
    Example("update of most", partial(_update, 7), (INT, INT * 2, np.int32(0))),
    Example("update of bools", partial(_update, 5), (BOOL, ~BOOL, np.int32(1))),
    Example("updates out of bounds", _update_wild, (MATRIX, WILD)),
    Example("update before the start", _raw_update, (MATRIX, np.int32(1))),
    Example("cache", _cache, (np.zeros((8, 4), np.float32), MATRIX[:3])),
    *_with_grad("counted", _counted, MATRIX),
    Example("large iota", _large_iota, ()),
    *_with_grad("eye", _eye, MATRIX),
    Example("by platform", _by_platform, (MATRIX,)),
    Example("empty", _empties, (MATRIX,)),
    Example("keys", _keys, (np.arange(8, dtype=np.uint32),)),
]

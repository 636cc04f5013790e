"""Gathers: lookups, batched and indexed in several dims, in every mode."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(0)
TABLE = _RNG.standard_normal((8, 4)).astype(np.float32)
CUBE = _RNG.standard_normal((4, 8, 4)).astype(np.float32)
IDS = np.array([[0, 3, 7, 5], [1, 1, 6, 2]], np.int32)
WILD = np.array([[0, -9, 7, 300], [8, -1, 2**31 - 1, -(2**31)]], np.int32)


def each(**fns):
    """Several functions of the same arguments as one: fewer programs to compile."""
    return lambda *args: {name: fn(*args) for name, fn in fns.items()}


def _lookup(table, ids, **options):
    return table.at[ids].get(**options)


def _raw(table, ids, numbers, sizes, mode, **options):
    return lax.gather(
        table, ids, lax.GatherDimensionNumbers(**numbers), sizes, mode=mode, **options
    )


def _rows(mode, table, ids, **options):
    """Rows of a table by `lax.gather` itself: indices are not wrapped around."""
    numbers = {
        "offset_dims": (ids.ndim,),
        "collapsed_slice_dims": (0,),
        "start_index_map": (0,),
    }
    return _raw(table, ids[..., None], numbers, (1, table.shape[1]), mode, **options)


def _pairs(mode, cube, ids):
    """Elements [batch, E] of dims 0 and 1 at once, with dim 2 whole."""
    numbers = {
        "offset_dims": (1,),
        "collapsed_slice_dims": (0, 1),
        "start_index_map": (1, 0),
    }
    return _raw(cube, ids, numbers, (1, 1, 4), mode)


def _windows(cube, starts):
    """Windows of 1 x 3 x 4, of which the first dim stays in the result."""
    numbers = {
        "offset_dims": (0, 2, 3),
        "collapsed_slice_dims": (),
        "start_index_map": (0, 1),
    }
    return _raw(cube, starts, numbers, (1, 3, 4), "clip")


def _whole_indexed(mode, table, starts):
    """The indexed dim is taken whole: indices other than 0 are out of bounds."""
    numbers = {
        "offset_dims": (1, 2),
        "collapsed_slice_dims": (),
        "start_index_map": (0,),
    }
    return _raw(table, starts, numbers, (8, 4), mode)


def _batched(mode, cube, ids):
    """Batching dims: cube[b, ids[n, b], :]."""
    numbers = {
        "offset_dims": (2,),
        "collapsed_slice_dims": (1,),
        "start_index_map": (1,),
        "operand_batching_dims": (0,),
        "start_indices_batching_dims": (1,),
    }
    return _raw(cube, ids[..., None], numbers, (1, 1, 4), mode)


def _grad(fn, *args):
    """Gradient of a weighted sum, so that every element counts differently."""
    out = jax.eval_shape(fn, *args)
    weight = jnp.arange(out.size, dtype=out.dtype).reshape(out.shape)
    return jax.grad(lambda x: (fn(x, *args[1:]) * weight).sum())(args[0])


def _of_keys(words, ids):
    return jax.random.key_data(jax.random.wrap_key_data(words)[ids])


def _dtypes(mode, dtypes):
    """Rows by indices of several dtypes, out of each one's bounds as well."""
    return each(**{d: lambda t, i, d=d: _rows(mode, t, i.astype(d)) for d in dtypes})


_take_along = partial(jnp.take_along_axis, axis=1)
_under_vmap = jax.vmap(lambda x, i: x[i])
_FOUR = IDS[[0, 1, 0, 1]]

EXAMPLES: list[Example] = [
    Example(
        "lookups",
        each(
            embedding=_lookup,
            take=partial(jnp.take, axis=0),
            columns=lambda x, i: x[:, i % 4],
            one=lambda x, i: x[i[0, 0]],
            pairs=lambda x, i: x[i, i % 4],
            integers=lambda x, i: _lookup((x * 9).astype(int), i),
            halves=lambda x, i: _lookup(x.astype(jnp.bfloat16), i),
            complex=lambda x, i: _lookup(x + 1j, i),
            gradient=partial(_grad, _lookup),
            tangent=lambda x, i: jax.jvp(lambda x: x[i], (x,), (x * 2,))[1],
        ),
        (TABLE, IDS),
    ),
    Example(
        "lookups in several dims",
        each(
            middle=partial(jnp.take, axis=1),
            ends=lambda x, i: x[i % 4, :, i % 4],
            front=lambda x, i: x[i % 4, i],
            vmapped=_under_vmap,
            table=lambda x, i: jax.vmap(lambda x: x[i])(x),
            windows=lambda x, i: _windows(x, i[:, :2] * 3),
            gradient=partial(_grad, _under_vmap),
        ),
        (CUBE, _FOUR),
    ),
    Example(
        "take along axis",
        each(values=_take_along, gradient=partial(_grad, _take_along)),
        (TABLE, IDS[[0] * 8] % 4),
    ),
    Example("lookup of odd sizes", _lookup, (TABLE[:7, :3], IDS[:, :3] % 7)),
    Example(
        "rows filled",
        each(
            numbers=partial(_rows, "fill", fill_value=7.0),
            zeros=partial(_rows, "fill", fill_value=0.0),
            integers=lambda x, i: _rows("fill", (x * 9).astype(jnp.int32), i),
            small=lambda x, i: _rows("fill", (abs(x) * 9).astype(jnp.uint8), i),
            bools=lambda x, i: _rows("fill", x > 0, i),
        ),
        (TABLE, WILD),
    ),
    Example("rows of keys", _of_keys, (np.uint32(np.arange(16)).reshape(8, 2), IDS)),
    Example(
        "a sum travels through a lookup",
        lambda x, y, i: (x @ y)[i] * 2,
        (TABLE, TABLE.T.copy(), IDS),
    ),
]

for _mode in ("clip", "fill", "promise_in_bounds"):
    _ids = IDS if _mode == "promise_in_bounds" else WILD
    EXAMPLES += [
        Example(
            f"rows, {_mode}",
            each(
                rows=partial(_rows, _mode),
                take=partial(_lookup, mode=_mode),
                gradient=partial(_grad, partial(_rows, _mode)),
                whole=lambda t, i, m=_mode: _whole_indexed(m, t, i.reshape(8, 1) // 8),
            ),
            (TABLE, _ids),
        ),
        Example(
            f"gathers in several dims, {_mode}",
            each(
                pairs=lambda x, i, m=_mode: _pairs(m, x, i.reshape(4, 2) % 4),
                wild=lambda x, i, m=_mode: _pairs(m, x, i.reshape(4, 2) // 2),
                batched=partial(_batched, _mode),
            ),
            (CUBE, _ids),
        ),
        Example(
            f"rows by small and large indices, {_mode}",
            _dtypes(_mode, ("int8", "uint8", "int16", "uint16", "uint32")),
            (TABLE, _ids),
        ),
    ]

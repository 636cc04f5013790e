"""Gathers: lookups, batched and indexed in several dims, in every mode."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.rules.catalogue import Example

_RNG = np.random.default_rng(0)
TABLE = _RNG.standard_normal((8, 4)).astype(np.float32)
CUBE = _RNG.standard_normal((4, 8, 4)).astype(np.float32)
IDS = np.array([[0, 3, 7, 5], [1, 1, 6, 2]], np.int32)
WILD = np.array([[0, -9, 7, 300], [8, -1, 2**31 - 1, -(2**31)]], np.int32)
BOUND = np.array([[0, 0, 7, 7], [7, 0, 7, 0]], np.int32)
MODES = ("clip", "fill", "promise_in_bounds")


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


def _unindexed(table, ids):
    """A collapsed dim that no index addresses, and a window at its start."""
    numbers = {
        "offset_dims": (1,),
        "collapsed_slice_dims": (0,),
        "start_index_map": (),
    }
    return _raw(table, ids, numbers, (1, 2), "clip")


def _grad(fn, *args):
    """Gradient of a weighted sum, so that every element counts differently."""
    out = jax.eval_shape(fn, *args)
    weight = jnp.arange(out.size, dtype=out.dtype).reshape(out.shape)
    return jax.grad(lambda x: (fn(x, *args[1:]) * weight).sum())(args[0])


EXAMPLES: list[Example] = [
    Example("embedding lookup", _lookup, (TABLE, IDS)),
    Example("take", partial(jnp.take, axis=0), (TABLE, IDS)),
    Example("take from a middle dim", partial(jnp.take, axis=1), (CUBE, IDS)),
    Example("take along axis", partial(jnp.take_along_axis, axis=1), (TABLE, IDS[[0] * 8])),
    Example("advanced indexing", lambda x, i: x[i, :, i], (CUBE, IDS % 4)),
    Example("two indexed dims", lambda x, i: x[i % 4, i], (CUBE, IDS)),
    Example("batched by vmap", jax.vmap(lambda x, i: x[i]), (CUBE, IDS[[0, 1, 0, 1]])),
    Example("vmapped over the table", jax.vmap(lambda x: x[IDS]), (CUBE,)),
    Example("one row", lambda x, i: x[i], (TABLE, np.int32(5))),
    Example("odd sizes", _lookup, (TABLE[:7, :3], IDS[:, :3] % 7)),
    Example("bools", _lookup, (TABLE > 0, IDS)),
    Example("bools filled", partial(_rows, "fill"), (TABLE > 0, WILD)),
    Example("integers filled", partial(_rows, "fill"), (np.int32(TABLE * 9), WILD)),
    Example("small integers filled", partial(_rows, "fill"), (np.uint8(IDS.T), WILD % 6)),
    Example("complex", _lookup, (TABLE + 1j * TABLE[::-1], IDS)),
    Example("half", _lookup, (TABLE.astype(jnp.bfloat16), IDS)),
    Example("filled with 7", partial(_rows, "fill", fill_value=7.0), (TABLE, WILD)),
    Example("filled with 0", partial(_rows, "fill", fill_value=0.0), (TABLE, WILD)),
    Example("windows", _windows, (CUBE, np.array([[0, 0], [3, 5], [9, 9], [2, 4]], np.int32))),
    Example("not indexed", _unindexed, (TABLE, np.zeros((4, 0), np.int32))),
    Example(
        "rows of keys",
        lambda k, i: jax.random.key_data(jax.random.wrap_key_data(k)[i]),
        (np.uint32(np.arange(16)).reshape(8, 2), IDS),
    ),
    Example("gradient of a lookup", partial(_grad, _lookup), (TABLE, IDS)),
    Example(
        "tangent of a lookup",
        lambda x, i: jax.jvp(lambda x: x[i], (x,), (x * 2,))[1],
        (TABLE, IDS),
    ),
    Example(
        "gradient of take along axis",
        partial(_grad, partial(jnp.take_along_axis, axis=1)),
        (TABLE, IDS[[0] * 8] % 4),
    ),
    Example(
        "gradient of a batched lookup",
        partial(_grad, jax.vmap(lambda x, i: x[i])),
        (CUBE, IDS[[0, 1, 0, 1]]),
    ),
    Example(
        "a sum travels",
        lambda x, y, i: (x @ y)[i] * 2,
        (TABLE, TABLE.T.copy(), IDS),
    ),
]

for _mode in MODES:
    _ids = BOUND if _mode == "promise_in_bounds" else WILD
    EXAMPLES += [
        Example(f"rows, {_mode}", partial(_rows, _mode), (TABLE, _ids)),
        Example(f"take, {_mode}", partial(_lookup, mode=_mode), (TABLE, _ids)),
        Example(f"pairs, {_mode}", partial(_pairs, _mode), (CUBE, _ids.reshape(4, 2) % 10)),
        Example(f"batched, {_mode}", partial(_batched, _mode), (CUBE, _ids)),
        Example(f"gradient, {_mode}", partial(_grad, partial(_rows, _mode)), (TABLE, _ids)),
        Example(
            f"whole window indexed, {_mode}",
            partial(_whole_indexed, _mode),
            (TABLE, np.array([[0], [0], [1], [-1]], np.int32)[: 2 if "pro" in _mode else 4]),
        ),
    ]
    EXAMPLES += [
        Example(
            f"rows by {_dtype}, {_mode}",
            partial(_rows, _mode),
            (TABLE, (_ids if _mode != "promise_in_bounds" else IDS).astype(_dtype)),
        )
        for _dtype in ("int8", "uint8", "int16", "uint32")
    ]

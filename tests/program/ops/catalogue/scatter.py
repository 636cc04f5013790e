"""Scatters: updates of every kind, in every mode, and their gradients."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.program.ops.catalogue import Example
from tests.program.ops.catalogue.gather import CUBE, IDS, TABLE, WILD, each

ROWS = np.random.default_rng(1).standard_normal((2, 4, 4)).astype(np.float32)
UNIQUE = np.array([[0, 3, 7, 5], [1, 4, 6, 2]], np.int32)
KINDS = ("set", "add", "subtract", "multiply", "min", "max")
_SCATTERS = {
    "set": lax.scatter,
    "add": lax.scatter_add,
    "subtract": lax.scatter_sub,
    "multiply": lax.scatter_mul,
    "min": lax.scatter_min,
    "max": lax.scatter_max,
}


def _update(kind, table, ids, rows, **options):
    return getattr(table.at[ids], kind)(rows, **options)


def _raw(kind, table, ids, updates, numbers, mode="clip", **options):
    return _SCATTERS[kind](
        table,
        ids,
        updates,
        lax.ScatterDimensionNumbers(**numbers),
        mode=mode,
        **options,
    )


def _rows(kind, mode, table, ids, rows):
    """Rows by `lax.scatter` itself: indices are not wrapped around."""
    numbers = {
        "update_window_dims": (2,),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
    }
    return _raw(kind, table, ids[..., None], rows, numbers, mode)


def _pairs(kind, mode, cube, ids, rows):
    """Rows at two indices, the second addressing the first dim."""
    numbers = {
        "update_window_dims": (1,),
        "inserted_window_dims": (0, 1),
        "scatter_dims_to_operand_dims": (1, 0),
    }
    return _raw(kind, cube, ids, rows, numbers, mode)


def _windows(kind, mode, cube, starts, updates):
    """Windows of 1 x 3 x 4, none of whose dims is inserted."""
    numbers = {
        "update_window_dims": (1, 2, 3),
        "inserted_window_dims": (),
        "scatter_dims_to_operand_dims": (0, 1),
    }
    return _raw(kind, cube, starts, updates, numbers, mode)


def _batched(kind, mode, cube, ids, rows):
    """Batching dims: cube[b, ids[n, b], :] with rows[n, b, :]."""
    numbers = {
        "update_window_dims": (2,),
        "inserted_window_dims": (1,),
        "scatter_dims_to_operand_dims": (1,),
        "operand_batching_dims": (0,),
        "scatter_indices_batching_dims": (1,),
    }
    return _raw(kind, cube, ids[..., None], rows, numbers, mode)


def _whole_indexed(kind, mode, table, starts, updates):
    """The indexed dim is written whole: indices other than 0 are out of bounds."""
    numbers = {
        "update_window_dims": (1, 2),
        "inserted_window_dims": (),
        "scatter_dims_to_operand_dims": (0,),
    }
    return _raw(kind, table, starts, updates, numbers, mode)


def _embedding_grad(table, ids):
    return jax.grad(lambda t: (t[ids] ** 2).sum())(table)


def _cache_update(cache, new, positions):
    """A KV cache [B, T, H, D]: each sequence writes at a position of its own."""
    return jax.vmap(lambda c, n, p: lax.dynamic_update_slice_in_dim(c, n, p, 0))(
        cache, new, positions
    )


def _cache_set(cache, new, positions):
    return cache.at[jnp.arange(cache.shape[0]), positions].set(new)


def _grads(kind, table, ids, rows):
    def loss(table, rows):
        out = getattr(table.at[ids], kind)(rows, unique_indices=True)
        return (out * jnp.arange(out.size, dtype=out.dtype).reshape(out.shape)).sum()

    return jax.grad(loss, (0, 1))(table, rows)


_CACHE = np.zeros((4, 8, 2, 4), np.float32)
_STEPS = np.array([0, 3, 7, 9], np.int32)
_PAIRS = np.array(
    [[0, 0], [7, 3], [8, 1], [-1, 2], [3, 4], [2, 2], [5, 0], [6, 1]], np.int32
)
_STARTS = np.array([[0, 0], [3, 5], [2, 7], [1, -1]], np.int32)
_WHOLE = np.array([[0], [1]], np.int32)
_OUTSIDE = np.array([[-9, 300, 2, 3], [8, -1, 6, 7]], np.int32)
_OUTSIDE_ONCE = np.array([[-9, 300, 2, 3], [4, 1, 6, 5]], np.int32)


def _whole_rows(table, ids, rows):
    """Forms that `jax.numpy` offers for rows of a table."""
    return {
        "integers": (table * 9).astype(int).at[ids].add((rows * 9).astype(int)),
        "halves": table.astype(jnp.bfloat16).at[ids].max(jnp.bfloat16(3)),
        "bools": (table > 0).at[ids].set(rows > 0),
        "complex": (table + 0j).at[ids].add(rows * 1j),
        "one": table.at[ids[0, 0]].set(rows[0, 0]),
        "number": table.at[ids[0, 0], 2].add(1.0),
        "literal": table.at[3, 2].set(1.0),
        "power": table.at[ids[0]].power(2.0),
        "divided": table.at[ids[0]].divide(2.0),
        "applied": table.at[ids[0]].apply(jnp.sin),
        "along": jnp.put_along_axis(table, ids[:1, :2] % 4, 3.0, 1, inplace=False),
        "sorted": table.at[jnp.sort(ids[0])].add(
            rows[0],
            mode="promise_in_bounds",
            indices_are_sorted=True,
            unique_indices=True,
        ),
        "one-hot": jnp.zeros((2, 4, 8)).at[0, 1, ids[0]].set(1.0),
    }


def _counts(table, ids):
    segments = ids.reshape(-1) % 4
    return {
        "gradient": _embedding_grad(table, ids),
        "small indices": _embedding_grad(table, ids.astype(jnp.uint8)),
        "sums": jax.ops.segment_sum(table, segments, 4),
        "maxima": jax.ops.segment_max(table, segments, 4),
        "bins": jnp.bincount(ids.reshape(-1), length=8),
        "histogram": jnp.histogram(table, bins=4)[0],
    }


def _of_keys(words, ids):
    keys = jax.random.wrap_key_data(words)
    return jax.random.key_data(keys.at[ids].set(jax.random.key(3)))


EXAMPLES: list[Example] = [
    Example("counts and gradients", _counts, (TABLE, IDS)),
    Example("scattered rows", _whole_rows, (TABLE, UNIQUE, ROWS)),
    Example("odd scatter", partial(_update, "add"), (TABLE[:7], IDS % 7, ROWS)),
    Example(
        "rows of keys set", _of_keys, (np.uint32(np.arange(16)).reshape(8, 2), IDS)
    ),
    Example("cache by slices", _cache_update, (_CACHE, _CACHE[:, :1] + 1, _STEPS)),
    Example("cache by indices", _cache_set, (_CACHE, _CACHE[:, 0] + 1, _STEPS)),
    Example(
        "a sum travels through a scatter",
        lambda x, y, i: (x @ y).at[i].add(x[:4] @ y),
        (TABLE, TABLE.T.copy(), IDS[0]),
    ),
]


def _every_row(kind, table, ids, rows):
    """Rows of a table, in bounds and out of them in every mode, with gradients."""
    one = (
        kind == "set"
    )  # clipped onto one row, the last of several counts: in any order
    clipped = _OUTSIDE_ONCE if one else _OUTSIDE
    count = 1 if one else 2
    return {
        "rows": _update(kind, table, ids, rows),
        "gradients": _grads(kind, table, UNIQUE, rows),
        "clipped": _rows(kind, "clip", table, clipped, rows),
        "dropped": _rows(kind, "drop", table, _OUTSIDE, rows),
        "whole clipped": _whole_indexed(
            kind, "clip", table, _WHOLE[:count], jnp.stack([table, -table])[:count]
        ),
        "whole dropped": _whole_indexed(
            kind, "drop", table, _WHOLE, jnp.stack([table, -table])
        ),
    }


def _every_window(kind, cube, ids, rows):
    """Rows and windows addressed in several dims of a cube, and batched."""
    one = kind == "set"
    few = np.abs(_PAIRS[:2]) if one else _PAIRS
    clipped = _OUTSIDE_ONCE if one else _OUTSIDE
    flat, blocks = rows.reshape(8, 4), cube[:, None, :3]
    return {
        "middle": getattr(cube.at[:, ids[0]], kind)(cube[:, 4:]),
        "vmapped": jax.vmap(partial(_update, kind))(cube, ids, cube[:, 4:]),
        "pairs clipped": _pairs(kind, "clip", cube, few, flat[: len(few)]),
        "pairs dropped": _pairs(kind, "drop", cube, _PAIRS, flat),
        "windows clipped": _windows(kind, "clip", cube, _STARTS, blocks),
        "windows dropped": _windows(kind, "drop", cube, _STARTS, blocks),
        "batched clipped": _batched(kind, "clip", cube, clipped, rows),
        "batched dropped": _batched(kind, "drop", cube, _OUTSIDE, rows),
    }


for _kind in KINDS:
    _ids = UNIQUE if _kind == "set" else IDS
    EXAMPLES += [
        Example(f"{_kind} rows", partial(_every_row, _kind), (TABLE, _ids, ROWS)),
        Example(
            f"{_kind} in several dims",
            partial(_every_window, _kind),
            (CUBE, _ids[[0, 1, 0, 1]], ROWS),
        ),
    ]

for _mode in ("clip", "drop"):
    _dtypes = ("int8", "uint8", "int16", "uint32")
    EXAMPLES.append(
        Example(
            f"add rows by small and large indices, {_mode}",
            each(
                **{
                    d: lambda t, i, r, d=d, m=_mode: _rows("add", m, t, i.astype(d), r)
                    for d in _dtypes
                }
            ),
            (TABLE, WILD, ROWS),
        )
    )

"""Scatters: updates of every kind, in every mode, and their gradients."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.rules.catalogue import Example
from tests.rules.catalogue.gather import CUBE, IDS, TABLE, WILD

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
        table, ids, updates, lax.ScatterDimensionNumbers(**numbers), mode=mode, **options
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
_NEW = np.ones((4, 1, 2, 4), np.float32)
_STEPS = np.array([0, 3, 7, 9], np.int32)
_PAIRS = np.array([[0, 0], [7, 3], [8, 1], [-1, 2], [3, 4], [2, 2], [5, 0], [6, 1]], np.int32)
_PAIR_ROWS = ROWS.reshape(8, 4)
_STARTS = np.array([[0, 0], [3, 5], [2, 7], [1, -1]], np.int32)
_BLOCKS = CUBE[:, None, :3]

EXAMPLES: list[Example] = [
    Example("embedding gradient", _embedding_grad, (TABLE, IDS)),
    Example(
        "embedding gradient, small indices", _embedding_grad, (TABLE, IDS.astype(np.uint8))
    ),
    Example("odd sizes", partial(_update, "add"), (TABLE[:7], IDS % 7, ROWS)),
    Example("integers", partial(_update, "add"), (np.int32(TABLE * 9), IDS, np.int32(ROWS * 9))),
    Example("half", partial(_update, "max"), (TABLE.astype(jnp.bfloat16), IDS, jnp.bfloat16(3))),
    Example("bools", partial(_update, "set"), (TABLE > 0, UNIQUE, ROWS > 0)),
    Example("complex", partial(_update, "add"), (TABLE + 0j, IDS, ROWS * 1j)),
    Example("one row", lambda x, i, y: x.at[i].set(y), (TABLE, np.int32(5), TABLE[0])),
    Example("one number", lambda x, i: x.at[i, 2].add(1.0), (TABLE, np.int32(5))),
    Example("a literal", lambda x: x.at[3, 2].set(1.0), (TABLE,)),
    Example("apply", lambda x, i: x.at[i].apply(jnp.sin), (TABLE, UNIQUE[0])),
    Example("power", lambda x, i: x.at[i].power(2.0), (TABLE, UNIQUE[0])),
    Example("divide", lambda x, i: x.at[i].divide(2.0), (TABLE, UNIQUE[0])),
    Example("one-hot by scatter", lambda i: jnp.zeros((2, 4, 8)).at[0, 1, i].set(1.0), (IDS[0],)),
    Example("cache by dynamic slices", _cache_update, (_CACHE, _NEW, _STEPS)),
    Example("cache by indices", _cache_set, (_CACHE, _NEW[:, 0], _STEPS)),
    Example("put along axis", lambda x, i: jnp.put_along_axis(x, i, 3.0, 1, inplace=False),
            (TABLE, UNIQUE[[0] * 8, :2] % 4)),
    Example("segment sum", lambda x, s: jax.ops.segment_sum(x, s, 4), (TABLE, IDS.reshape(8) % 4)),
    Example("segment max", lambda x, s: jax.ops.segment_max(x, s, 4), (TABLE, IDS.reshape(8) % 4)),
    Example("bincount", lambda i: jnp.bincount(i, length=8), (IDS.reshape(8),)),
    Example("histogram", lambda x: jnp.histogram(x, bins=4)[0], (TABLE,)),
    Example(
        "promised and sorted",
        lambda x, i, y: x.at[i].add(
            y, mode="promise_in_bounds", indices_are_sorted=True, unique_indices=True
        ),
        (TABLE, np.array([1, 2, 4, 7], np.int32), ROWS[0]),
    ),
    Example(
        "a sum travels",
        lambda x, y, i: (x @ y).at[i].add(x[:4] @ y),
        (TABLE, TABLE.T.copy(), IDS[0]),
    ),
    Example(
        "keys",
        lambda k, i: jax.random.key_data(
            jax.random.wrap_key_data(k).at[i].set(jax.random.key(3))
        ),
        (np.uint32(np.arange(16)).reshape(8, 2), IDS[0]),
    ),
]

for _kind in KINDS:
    _ids = UNIQUE if _kind == "set" else IDS
    EXAMPLES += [
        Example(f"{_kind}", partial(_update, _kind), (TABLE, _ids, ROWS)),
        Example(
            f"{_kind} in the middle",
            lambda x, i, y, kind=_kind: getattr(x.at[:, i], kind)(y),
            (CUBE, _ids[0], np.moveaxis(CUBE, 1, 1)[:, :4]),
        ),
        Example(
            f"{_kind} under vmap",
            jax.vmap(partial(_update, _kind)),
            (CUBE, _ids[[0, 1, 0, 1]], CUBE[:, :4]),
        ),
        Example(f"gradients of {_kind}", partial(_grads, _kind), (TABLE, UNIQUE, ROWS)),
    ]
    for _mode in ("clip", "drop"):
        _wild = np.array([[-9, 300, 2, 3], [8, -1, 6, 7]], np.int32)
        if _kind == "set" and _mode == "clip":
            _wild = np.array([[-9, 300, 2, 3], [4, 1, 6, 5]], np.int32)
        EXAMPLES += [
            Example(f"{_kind} rows, {_mode}", partial(_rows, _kind, _mode), (TABLE, _wild, ROWS)),
            Example(
                f"{_kind} pairs, {_mode}",
                partial(_pairs, _kind, _mode),
                (CUBE, _PAIRS if _mode == "drop" or _kind != "set" else abs(_PAIRS[:2]),
                 _PAIR_ROWS if _mode == "drop" or _kind != "set" else _PAIR_ROWS[:2]),
            ),
            Example(
                f"{_kind} windows, {_mode}",
                partial(_windows, _kind, _mode),
                (CUBE, _STARTS, _BLOCKS),
            ),
            Example(
                f"{_kind} batched, {_mode}",
                partial(_batched, _kind, _mode),
                (CUBE, _wild, ROWS),
            ),
            Example(
                f"{_kind} whole window indexed, {_mode}",
                partial(_whole_indexed, _kind, _mode),
                (TABLE, np.array([[0], [1]], np.int32)[: 2 if _mode == "drop" else 1],
                 np.stack([TABLE, -TABLE])[: 2 if _mode == "drop" else 1]),
            ),
        ]

for _mode in ("clip", "drop"):
    EXAMPLES += [
        Example(
            f"add rows by {_dtype}, {_mode}",
            partial(_rows, "add", _mode),
            (TABLE, WILD.astype(_dtype), ROWS),
        )
        for _dtype in ("int8", "uint8", "int16", "uint32")
    ]

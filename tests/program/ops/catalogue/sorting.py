"""Sorts and searches for the largest elements."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(13)
_X = _RNG.permutation(8 * 4 * 6).reshape(8, 4, 6).astype(np.float32)
_KEYS = _RNG.integers(0, 3, (8, 6)).astype(np.int32)
_MORE = _RNG.integers(0, 9, (8, 6)).astype(np.float32)
_WIDE = _RNG.permutation(2 * 48).reshape(2, 48).astype(np.float32)
_REST = np.arange(48, dtype=np.float32).reshape(8, 6)


def _by_two_keys(a, b, c):
    return lax.sort((a, b, c), dimension=0, num_keys=2)


def _by_one_key(a, b, c):
    return lax.sort((a, b, c), dimension=1, num_keys=1, is_stable=True)


def _sum_of_sorted(x):
    return jnp.sum(jnp.sort(x, 1) * jnp.arange(4.0)[:, None])


def _sum_of_largest(x):
    return jnp.sum(lax.top_k(x, 2)[0] ** 2)


_SOME_NAN = np.where(_WIDE > 1, np.float32(np.nan), np.round(_WIDE))
"""With equal elements."""

EXAMPLES: list[Example] = [
    Example("sort_last", lambda x: jnp.sort(x), (_X,)),
    Example("sort_middle", lambda x: lax.sort(x, dimension=1, is_stable=False), (_X,)),
    Example("sort_descending", lambda x: jnp.sort(x, 0, descending=True), (_X,)),
    Example("sort_vector", lambda x: jnp.sort(x), (_X[:, 0, 0],)),
    Example("sort_two_keys", _by_two_keys, (_KEYS, _MORE, _REST)),
    Example("sort_one_key", _by_one_key, (_KEYS, _MORE, _REST)),
    Example("argsort", lambda x: jnp.argsort(x, 0), (_X,)),
    Example("median", lambda x: jnp.median(x, 1), (_X,)),
    Example("top_k", lambda x: lax.top_k(x, 3), (_X,)),
    Example("top_k_middle", lambda x: lax.top_k(x, 2, axis=1), (_X,)),
    Example("approx_max_k", lambda x: lax.approx_max_k(x, 3), (_X,)),
    Example("approx_min_k", lambda x: lax.approx_min_k(x, 2, 1), (_X,)),
    Example("approx_max_k_nan", lambda x: lax.approx_max_k(x, 3), (_SOME_NAN,)),
    Example(
        "approx_min_k_nan",
        lambda x: lax.approx_min_k(x, 3),
        (_SOME_NAN,),
        since=(0, 11),  # older XLA loses values that stand beside a NaN
    ),
    Example(
        "approx_max_k_raw",
        lambda x: lax.approx_max_k(x, 3, 0, aggregate_to_topk=False)[0].max(0),
        (_X,),
    ),
    Example("grad_sort", jax.grad(_sum_of_sorted), (_X,)),
    Example(
        "grad_approx_min_k",
        jax.grad(lambda x: jnp.sum(lax.approx_min_k(x, 2)[0] ** 2)),
        (_WIDE,),
    ),
    Example("approx_max_k_wide", lambda x: lax.approx_max_k(x, 3), (_WIDE,)),
    Example("approx_min_k_first", lambda x: lax.approx_min_k(x, 3, 0), (_WIDE.T,)),
    Example("grad_top_k", jax.grad(_sum_of_largest), (_X,)),
]

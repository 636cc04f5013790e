"""Choices of the largest elements in JAX's order: equal elements by place, NaN first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshwright.features.deploy.legal.rewrite import is_float
from meshwright.program.ir import Op

Replacement = Callable[..., Any] | None

_MOST_ROUNDS = 8
"""Most elements that are chosen one after another; a sort chooses more."""


def order_key(x: Any) -> Any:
    """Integers in the total order of floats: -NaN, -inf, ..., -0, 0, ..., inf, NaN."""
    if not is_float(str(x.dtype)):
        return x
    return _turned(lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}"))


def _turned(bits: Any) -> Any:
    """The key of the bits of a float, or the bits of a key."""
    return jnp.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _of_key(key: Any, dtype: str) -> Any:
    """The numbers whose keys are given."""
    if not is_float(dtype):
        return key
    return lax.bitcast_convert_type(_turned(key), dtype)


def top_by_key(op: Op) -> Replacement:
    """`top_k` of float32 as one of integers, for a kernel that has no place for NaN."""
    params: Any = op.params
    if op.operands[0].dtype != "float32":
        return None

    def computed(x: Any) -> Any:
        found, places = lax.top_k(order_key(x), params["k"], axis=params["axis"])
        return [_of_key(found, "float32"), places]

    return computed


def top_in_order(op: Op) -> Replacement:
    """`top_k` one element after another, or by a sort, where a compiler's has no order."""
    params: Any = op.params
    k, axis, dtype = params["k"], params["axis"], op.operands[0].dtype
    choose = _by_rounds if k <= _MOST_ROUNDS else _by_sort

    def computed(x: Any) -> Any:
        key = jnp.moveaxis(order_key(x), axis, -1)
        found = choose(key, k)
        keys, places = (jnp.moveaxis(each, -1, axis) for each in found)
        return [_of_key(keys, dtype), places]

    return computed


def _by_rounds(key: Any, k: int) -> tuple[Any, Any]:
    """The largest keys and their places; each round takes the largest that is left."""
    place = lax.broadcasted_iota(jnp.int32, key.shape, key.ndim - 1)
    least = jnp.asarray(np.iinfo(key.dtype).min, key.dtype)
    is_left = jnp.ones(key.shape, bool)
    keys: list[Any] = []
    places: list[Any] = []
    for _ in range(k):
        largest = jnp.where(is_left, key, least).max(-1, keepdims=True)
        is_largest = is_left & (key == largest)
        first = jnp.where(is_largest, place, key.shape[-1]).min(-1, keepdims=True)
        is_left = is_left & (place != first)
        keys.append(largest)
        places.append(first)
    return jnp.concatenate(keys, -1), jnp.concatenate(places, -1)


def _by_sort(key: Any, k: int) -> tuple[Any, Any]:
    place = lax.broadcasted_iota(jnp.int32, key.shape, key.ndim - 1)
    opposite, places = lax.sort((~key, place), num_keys=2)
    return ~opposite[..., :k], places[..., :k]

"""Sorting, total orders and cumulative ops by ops that targets have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshwright.features.deploy.legal.choices import order_key
from meshwright.features.deploy.legal.rewrite import is_float
from meshwright.program.ir import Op

Replacement = Callable[..., Any] | None


def sort_by_one_key(op: Op) -> Replacement:
    """A sort by several keys as stable sorts by one key, the last key first."""
    params: Any = op.params
    if params["num_keys"] == 1:
        return None

    def computed(*operands: Any) -> Any:
        found = list(operands)
        for key in reversed(range(params["num_keys"])):
            rest = [x for i, x in enumerate(found) if i != key]
            first, *others = lax.sort(
                (found[key], *rest), dimension=params["dimension"], num_keys=1
            )
            found = [*others[:key], first, *others[key:]]
        return found

    return computed


def stable_sort(op: Op) -> Replacement:
    """A sort whose last key is the position, for a compiler whose sort is not stable.

    IREE sorts in place, also what it has found to be constant, such as the places of an
    argsort, and then refuses its own code. So no operand looks constant. Positions count
    from -n, so that they are not merged with those of an argsort.
    """
    params: Any = op.params
    keys, dim = params["num_keys"], params["dimension"]
    is_whole = len(op.operands) == keys

    def computed(*operands: Any) -> Any:
        first, shape = operands[0], operands[0].shape
        place = lax.broadcasted_iota(jnp.int32, shape, dim) - shape[dim]
        places = () if is_whole else (place,)
        never = (first > first.dtype.type(0)) & (first < first.dtype.type(0))
        given = [
            jnp.where(never, jnp.zeros_like(x), x)
            for x in (*operands[1:keys], *places, *operands[keys:])
        ]
        found = lax.sort((first, *given), dimension=dim, num_keys=keys + len(places))
        return [x for i, x in enumerate(found) if is_whole or i != keys]

    return computed


def reverse_alone(op: Op) -> Replacement:
    """A reversal of a whole array: IREE's code for one of a strided slice is not valid.

    The cosine transform of `jax.scipy.fft` has one.
    """
    dims: Any = op.params["dimensions"]
    return lambda x: lax.rev(lax.optimization_barrier(x), dims)


def sort_by_top(op: Op) -> Replacement:
    """A sort by one key as the choice of the largest opposites, for all elements.

    Zeros of both signs are equal, and so are NaNs, which come last.
    """
    params: Any = op.params
    axis, key = params["dimension"], op.operands[0]
    if key.dtype not in ("float32", "int32"):
        return None

    def computed(*operands: Any) -> Any:
        x = jnp.moveaxis(operands[0], axis, -1)
        if is_float(key.dtype):
            x = jnp.where(x == 0, jnp.zeros_like(x), x)
            x = order_key(jnp.where(x != x, jnp.full_like(x, np.nan), x))
        _, places = lax.top_k(-1 - x, x.shape[-1])
        moved = (jnp.moveaxis(each, axis, -1) for each in operands)
        found = (jnp.take_along_axis(m, places, -1, mode="clip") for m in moved)
        return [jnp.moveaxis(each, -1, axis) for each in found]

    return computed


def total_order(op: Op) -> Replacement:
    """Comparison in the total order of floats: -0 before 0, and NaN last."""
    if not is_float(op.operands[0].dtype):
        return lax.lt if op.kind == "lt_to" else lax.le

    def is_below(x: Any, y: Any) -> Any:
        zeros = (x == 0) & (y == 0)
        return (x < y) | (zeros & (1 / x < 1 / y)) | ((y != y) & (x == x))

    if op.kind == "lt_to":
        return is_below
    return lambda x, y: ~is_below(y, x)


_STEPS: dict[str, tuple[Callable[..., Any], float]] = {
    "cummax": (lax.max, -np.inf), "cummin": (lax.min, np.inf), "cumprod": (lax.mul, 1),
    "cumlogsumexp": (jnp.logaddexp, -np.inf), "cumsum": (lax.add, 0),
}  # fmt: skip


def cumulative(op: Op) -> Replacement:
    """A cumulative op in log2(n) steps of shifted copies (Hillis and Steele, 1986)."""
    params: Any = op.params
    combine, start = _STEPS[op.kind]
    axis, dtype = params["axis"], op.results[0].dtype
    if np.isinf(start) and not is_float(dtype):
        info = np.iinfo(dtype)
        start = info.min if start < 0 else info.max

    def computed(x: Any) -> Any:
        n, step = x.shape[axis], 1
        fill = jnp.asarray(start, dtype)
        while step < n:
            config = [(0, 0, 0)] * x.ndim
            ends = (-step, step) if params["reverse"] else (step, -step)
            config[axis] = (*ends, 0)
            x = combine(x, lax.pad(x, fill, config))
            step *= 2
        return x

    return computed


def tiled(op: Op) -> Replacement:
    """`tile` by concatenation along each dim."""
    reps: Any = op.params["reps"]

    def computed(x: Any) -> Any:
        for dim, count in enumerate(reps):
            x = x if count == 1 else lax.concatenate([x] * count, dim)
        return x

    return computed


def stacked(op: Op) -> Replacement:
    axis: Any = op.params["axis"]
    return lambda *xs: lax.concatenate([lax.expand_dims(x, (axis,)) for x in xs], axis)

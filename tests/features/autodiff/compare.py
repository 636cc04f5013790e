"""Comparison of `mw.linearize` with JAX's own derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import meshwright as mw

FLOAT0 = jax.dtypes.float0


def direction(x: Any, rng: np.random.Generator, zeros: float = 0.0) -> Any:
    """A random tangent or cotangent of an array; all of it is 0 with that probability."""
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return np.zeros(x.shape, FLOAT0)
    scale = 0.0 if rng.random() < zeros else 1.0
    return jnp.asarray(scale * rng.standard_normal(x.shape), x.dtype)


def floats(tree: Any) -> list[Any]:
    """The leaves of a tree other than derivatives of integers."""
    return [x for x in jax.tree.leaves(tree) if x.dtype != FLOAT0]


def has_reverse_mode(fn: Callable[..., Any], args: Any, cotangents: Any) -> bool:
    """Whether JAX can differentiate the function backwards; it cannot if a loop is open."""
    try:
        jax.eval_shape(lambda *a: floats(jax.vjp(fn, *a)[1](cotangents)), *args)
    except ValueError as error:
        if "Reverse-mode differentiation does not work" not in str(error):
            raise
        return False
    return True


def has_forward_mode(fn: Callable[..., Any], args: Any, tangents: Any) -> bool:
    """Whether JAX can differentiate the function forwards; not through `custom_vjp`."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
    try:
        jax.jit(lambda *a: floats(jax.jvp(fn, a, tangents))).lower(*shapes)
    except TypeError as error:
        if "custom_vjp" not in str(error):
            raise
        return False
    return True


def both(
    fn: Callable[..., Any], args: tuple[Any, ...], tangents: Any, cotangents: Any
) -> dict[str, tuple[list[Any], list[Any]]]:
    """Result, tangent and cotangents by `mw.linearize`, each beside JAX's.

    What JAX cannot compute is left out: `mw.linearize` may refuse it.
    """
    found = mw.linearize(fn, *args)
    # A function may return a Python number, which JAX leaves as it is.
    pairs = {"result": (found.result, jax.tree.map(jnp.asarray, fn(*args)))}
    if "custom_vjp" not in str(found.dual) or has_forward_mode(fn, args, tangents):
        pairs["jvp"] = found.linear(*tangents), jax.jvp(fn, args, tangents)[1]
    if has_reverse_mode(fn, args, cotangents):
        pairs["vjp"] = found.transpose()(cotangents), jax.vjp(fn, *args)[1](cotangents)
    for ours, other in pairs.values():
        types = [(x.shape, x.dtype) for x in jax.tree.leaves(ours)]
        assert types == [(x.shape, x.dtype) for x in jax.tree.leaves(other)]
        assert jax.tree.structure(ours) == jax.tree.structure(other)
    return {which: (floats(a), floats(b)) for which, (a, b) in pairs.items()}


def assert_equal_jax(
    fn: Callable[..., Any],
    *args: Any,
    seed: int = 0,
    rtol: float = 1e-4,
    zeros: float = 0.0,
) -> None:
    """Result, `jvp` and `vjp` of the function equal JAX's, all from one compilation."""
    rng = np.random.default_rng(seed)
    tangents = jax.tree.map(lambda x: direction(x, rng, zeros), args)
    shapes = jax.eval_shape(fn, *args)
    cotangents = jax.tree.map(lambda x: direction(x, rng, zeros), shapes)
    pairs = jax.jit(lambda a: both(fn, a, tangents, cotangents))(args)
    for which, (ours, theirs) in pairs.items():
        for a, b in zip(ours, theirs, strict=True):
            assert_close(a, b, rtol, which)


def assert_close(ours: Any, theirs: Any, rtol: float, which: str) -> None:
    """Arrays are equal up to `rtol` of the largest element; NaNs at equal places."""
    a, b = (np.asarray(x, np.complex128 if jnp.iscomplexobj(x) else np.float64)
            for x in (ours, theirs))  # fmt: skip
    is_finite = np.isfinite(b)
    np.testing.assert_array_equal(np.isfinite(a), is_finite, which)
    # Some gradients are zero but for rounding, such as that of attention's key bias.
    largest = np.max(np.abs(b[is_finite]), initial=1e-5)
    worst = np.max(np.abs(a[is_finite] - b[is_finite]), initial=0.0)
    assert worst <= rtol * largest, f"{which}: {worst} of {largest}"

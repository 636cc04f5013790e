"""Cumulative reductions, forward and in reverse, along outer and inner dims."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(12)
_X = _RNG.normal(size=(4, 8, 3)).astype(np.float32)
_I = _RNG.integers(-9, 9, (4, 16)).astype(np.int32)
_C = (_RNG.normal(size=(8, 4)) + 1j * _RNG.normal(size=(8, 4))).astype(np.complex64)
_EDGES = np.array(
    [[-np.inf] * 4 + [0, 1, -np.inf, 3], [np.nan, 0, 1, 2, 3, np.inf, 5, 6]], np.float32
)


def _along(scan, axis, reverse=False):
    return lambda x: scan(x, axis=axis, reverse=reverse)


def _gradient(scan, reverse):
    return jax.grad(lambda x: jnp.sum(jnp.sin(scan(x, axis=1, reverse=reverse))))


_SCANS = {
    "cumsum": lax.cumsum,
    "cumprod": lax.cumprod,
    "cummax": lax.cummax,
    "cummin": lax.cummin,
    "cumlogsumexp": lax.cumlogsumexp,
}

MORE: list[Example] = [
    *(
        Example(f"{name}_{axis}_{reverse}", _along(scan, axis, reverse), (_X,))
        for name, scan in _SCANS.items()
        for axis, reverse in ((0, True), (1, False), (2, False), (2, True))
    ),
    *(
        Example(f"grad_{name}_{reverse}", _gradient(scan, reverse), (_X,))
        for name, scan in _SCANS.items()
        for reverse in (False, True)
    ),
]
"""Further forms, for a longer run."""

EXAMPLES: list[Example] = [
    *(
        Example(f"{name}_{axis}_{reverse}", _along(scan, axis, reverse), (_X,))
        for name, scan in _SCANS.items()
        for axis, reverse in ((0, False), (1, True))
    ),
    *(
        Example(f"{name}_int", _along(scan, 1), (_I,))
        for name, scan in _SCANS.items()
        if name != "cumlogsumexp"
    ),
    *(
        Example(f"{name}_edges", _along(scan, 1), (_EDGES,))
        for name, scan in _SCANS.items()
    ),
    Example("grad_cumsum", _gradient(lax.cumsum, False), (_X,)),
    Example("cumsum_complex", _along(lax.cumsum, 0), (_C,)),
    Example("cumprod_complex", _along(lax.cumprod, 0, True), (_C,)),
    Example("cummax_complex", _along(lax.cummax, 0), (_C,)),
    Example("cumsum_half", lambda x: lax.cumsum(x.astype(jnp.bfloat16), 1), (_X,)),
    Example("cummax_uint", lambda x: lax.cummax(x.astype(np.uint8), 1), (_I,)),
    Example(
        "cumsum_empty", _along(lax.cumsum, 0), (np.zeros((0, 4), np.float32),), (0, 11)
    ),
]

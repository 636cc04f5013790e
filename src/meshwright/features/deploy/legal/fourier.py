"""Fourier transforms of pairs of real arrays, by products with DFT matrices.

A length that is a product is transformed in two steps (Cooley and Tukey, 1965).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshwright.features.deploy.source.inexpressible import Inexpressible

Pair = tuple[Any, Any]
"""The real and the imaginary part of an array."""

_LARGEST_MATRIX = 64
"""Longest transform by one product; two smaller products are cheaper beyond."""

_LARGEST_PRIME = 2048
"""Longest prime length; its matrices have 32 MiB."""


def transform(re: Any, im: Any, kind: str, lengths: Sequence[int]) -> Any:
    """XLA's `fft` over the last dims of given lengths: a pair, or an array for IRFFT."""
    dims = [re.ndim - len(lengths) + i for i in range(len(lengths))]
    if kind in ("FFT", "IFFT"):
        for dim in reversed(dims):
            re, im = _along(re, im, dim, is_inverse=kind == "IFFT")
        return re, im
    *others, last = dims
    if kind == "RFFT":
        kept = lengths[-1] // 2 + 1
        re, im = (x[..., :kept] for x in _along(re, None, last, is_inverse=False))
        for dim in others:
            re, im = _along(re, im, dim, is_inverse=False)
        return re, im
    for dim in others:
        re, im = _along(re, im, dim, is_inverse=True)
    re, im = _mirrored(re, im, lengths[-1])
    return _along(re, im, last, is_inverse=True)[0]


def _mirrored(re: Any, im: Any, length: int) -> Pair:
    """The spectrum of a real signal, from its first half."""
    kept = length // 2 + 1
    re, im = re[..., :kept], im[..., :kept]
    count = (length - 1) // 2
    back = [x[..., 1 : count + 1][..., ::-1] for x in (re, im)]
    return lax.concatenate([re, back[0]], re.ndim - 1), lax.concatenate(
        [im, -back[1]], re.ndim - 1
    )


def _along(re: Any, im: Any, dim: int, *, is_inverse: bool) -> Pair:
    """The transform along one dim; the inverse is divided by the length. im: or None."""
    re = jnp.moveaxis(re, dim, -1)
    im = None if im is None else jnp.moveaxis(im, dim, -1)
    n = re.shape[-1]
    found = _last(re, im, 1 if is_inverse else -1)
    if is_inverse:
        found = found[0] / n, found[1] / n
    return jnp.moveaxis(found[0], -1, dim), jnp.moveaxis(found[1], -1, dim)


def _last(re: Any, im: Any, sign: int) -> Pair:
    """The transform along the last dim, of exp(sign * 2 pi i j k / n)."""
    n = re.shape[-1]
    first = next((a for a in range(int(n**0.5), 1, -1) if n % a == 0), 1)
    if n <= _LARGEST_MATRIX or first == 1:
        return _by_matrix(re, im, sign)
    second = n // first
    shape = (*re.shape[:-1], first, second)

    def columns(x: Any) -> Any:
        return None if x is None else jnp.swapaxes(x.reshape(shape), -1, -2)

    re, im = _last(columns(re), columns(im), sign)  # [..., second, first]
    cos, sin = _roots_of_unity(
        np.outer(np.arange(second), np.arange(first)), n, sign, re.dtype
    )
    re, im = re * cos - im * sin, re * sin + im * cos
    re, im = _last(jnp.swapaxes(re, -1, -2), jnp.swapaxes(im, -1, -2), sign)
    whole = (*shape[:-2], n)
    return (
        jnp.swapaxes(re, -1, -2).reshape(whole),
        jnp.swapaxes(im, -1, -2).reshape(whole),
    )


def _by_matrix(re: Any, im: Any, sign: int) -> Pair:
    n = re.shape[-1]
    if n > _LARGEST_PRIME:
        raise Inexpressible(
            f"a transform of {n} elements, which has a large prime factor, would need a "
            "matrix of that size: pad it to a product of small numbers"
        )
    cos, sin = _roots_of_unity(np.outer(np.arange(n), np.arange(n)), n, sign, re.dtype)

    def product(x: Any, matrix: Any) -> Any:
        return jnp.matmul(x, matrix, precision=lax.Precision.HIGHEST)

    if im is None:
        return product(re, cos), product(re, sin)
    return product(re, cos) - product(im, sin), product(re, sin) + product(im, cos)


def _roots_of_unity(steps: Any, n: int, sign: int, dtype: Any) -> Pair:
    """Real and imaginary parts of exp(sign * 2 pi i * steps / n), shaped like `steps`."""
    angles = sign * 2 * np.pi * (steps % n) / n
    return jnp.asarray(np.cos(angles), dtype), jnp.asarray(np.sin(angles), dtype)

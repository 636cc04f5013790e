"""Fourier transforms of all four types, over one to three dims, and gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(17)
_X = _RNG.normal(size=(4, 8, 6)).astype(np.float32)
_Z = (_X + 1j * _X[::-1]).astype(np.complex64)
_CUBE = _RNG.normal(size=(2, 4, 4, 4)).astype(np.float32)


def _gradient(fn):
    return jax.grad(lambda x: jnp.sum(jnp.abs(fn(x)) ** 2))


def _three(x):
    return jnp.fft.fftn(x.astype(np.complex64), axes=(1, 2, 3))


EXAMPLES: list[Example] = [
    Example("fft", jnp.fft.fft, (_Z,)),
    Example("ifft", jnp.fft.ifft, (_Z,)),
    Example("rfft", jnp.fft.rfft, (_X,)),
    Example("irfft", jnp.fft.irfft, (_Z,)),
    Example("irfft_odd", lambda z: jnp.fft.irfft(z, 9), (_Z,)),
    Example("fft_first", lambda z: jnp.fft.fft(z, axis=0), (_Z,)),
    Example("fft_padded", lambda z: jnp.fft.fft(z, 16, axis=1), (_Z,)),
    Example("fft2", jnp.fft.fft2, (_Z,)),
    Example("rfft2", jnp.fft.rfft2, (_X,)),
    Example("irfft2", jnp.fft.irfft2, (_Z,)),
    Example("fftn", _three, (_CUBE,)),
    Example("rfftn_all", jnp.fft.rfftn, (_X,)),
    Example("convolved", lambda x: jnp.fft.irfft(jnp.fft.rfft(x) ** 2), (_X,)),
    Example("grad_rfft", _gradient(jnp.fft.rfft), (_X,)),
    Example("grad_rfft2", _gradient(jnp.fft.rfft2), (_X,)),
    Example("grad_irfft", _gradient(lambda x: jnp.fft.irfft(x + 0j)), (_X,)),
    Example("grad_fft", _gradient(lambda x: jnp.fft.fft(x + 0j)), (_X,)),
]

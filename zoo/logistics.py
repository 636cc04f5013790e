"""Mixtures of logistics over the levels of 16-bit audio.

T. Salimans, A. Karpathy, X. Chen, D. P. Kingma, "PixelCNN++", ICLR 2017. A level's
probability is the mass between half a level below and above it. Letters: M logistics.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from zoo.audio import LEVELS, STEP


class Mixture(NamedTuple):
    """Logistics: weights before softmax, means, logarithms of scales; each [..., M]."""

    logits: Array
    means: Array
    log_scales: Array


def log_density(mixture: Mixture, x: Array) -> Array:
    """log of the mass around each of `x` [...], which may lie between levels, by its width.

    sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - exp(a - b)) loses no digits
    where both are close, as they are at 16 bits.
    """
    below, above, half = _around(mixture, x)
    return _mix(mixture, below + above + jnp.log(-jnp.expm1(-2 * half))) - jnp.log(STEP)


def log_mass(mixture: Mixture, x: Array) -> Array:
    """log of the probability of levels `x` [...]: the first and last take the tails."""
    below, above, _ = _around(mixture, x)
    inner = log_density(mixture, x) + jnp.log(STEP)
    inner = jnp.where(x > 1 - 1.5 * STEP, _mix(mixture, above), inner)
    return jnp.where(x < -1 + 0.5 * STEP, _mix(mixture, below), inner)


def _around(mixture: Mixture, x: Array) -> tuple[Array, Array, Array]:
    """log of the mass below x + STEP / 2, that above x - STEP / 2, and half a level.

    Each for every logistic; half a level is in units of its scale.
    """
    centred = (x[..., None] - mixture.means) * jnp.exp(-mixture.log_scales)
    half = STEP / 2 * jnp.exp(-mixture.log_scales)
    return jax.nn.log_sigmoid(centred + half), jax.nn.log_sigmoid(half - centred), half


def _mix(mixture: Mixture, log_each: Array) -> Array:
    weights = jax.nn.log_softmax(mixture.logits, axis=-1)
    return jax.nn.logsumexp(weights + log_each, axis=-1)


class Noise(NamedTuple):
    """What decides a sample: `gumbel` [..., M] which logistic, `logistic` [...] where."""

    gumbel: Array
    logistic: Array


def draw_noise(key: Array, shape: tuple[int, ...], mixtures: int) -> Noise:
    """Standard noise for samples of `shape`."""
    which, where = jax.random.split(key)
    return Noise(
        jax.random.gumbel(which, (*shape, mixtures)), jax.random.logistic(where, shape)
    )


def draw(mixture: Mixture, noise: Noise) -> Array:
    """Levels [...] of the mixture's distribution."""
    chosen = jnp.argmax(mixture.logits + noise.gumbel, axis=-1, keepdims=True)
    mean, log_scale = (
        jnp.take_along_axis(part, chosen, axis=-1)[..., 0] for part in mixture[1:]
    )
    x = mean + jnp.exp(log_scale) * noise.logistic
    return nearest_level(x)


def nearest_level(x: Array) -> Array:
    """The 16-bit level nearest to each of `x`; louder samples are clipped."""
    return jnp.clip(jnp.round(x / STEP), -LEVELS // 2, LEVELS // 2 - 1) * STEP

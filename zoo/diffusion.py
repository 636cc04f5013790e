"""Diffusion: images become noise in T steps, and a network that predicts noise reverses it.

J. Ho, A. Jain, P. Abbeel, "Denoising Diffusion Probabilistic Models", NeurIPS 2020, for
any net: a function of noisy images [B, S, S, 3] and their times [B]. Other than theirs it
need not say again what it was given: see `noise_in`.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from PIL import Image

Net = Callable[[Array, Array], Array]

FIRST_BETA, LAST_BETA, HO_STEPS = 1e-4, 0.02, 1000
"""Ho's schedule of noise; with fewer steps each adds more, so that noise is reached."""


def noise_schedule(steps: int) -> tuple[Array, Array]:
    """Of each step [T]: the variance it adds, and what share of the image it leaves."""
    scale = HO_STEPS / steps
    if scale * LAST_BETA >= 1:
        least = int(HO_STEPS * LAST_BETA) + 1
        raise ValueError(f"{steps} steps reach noise too soon; {least} or more do not")
    betas = jnp.linspace(FIRST_BETA * scale, LAST_BETA * scale, steps)
    return betas, jnp.cumprod(1 - betas)


def add_noise(image: Array, noise: Array, left: Array) -> Array:
    """Images of whose variance a share `left` [B] is left, the rest noise (eq. 4)."""
    left = left[:, None, None, None]
    return jnp.sqrt(left) * image + jnp.sqrt(1 - left) * noise


def noise_in(net: Net, x: Array, time: Array, left: Array) -> Array:
    """The noise in images x [B, S, S, 3], of whose variance a share `left` [B] is left.

    Where nearly all is noise it is x itself, so the net says only what differs, and a
    small error there is not a large one of the image (Salimans and Ho, ICLR 2022).
    """
    left = left[:, None, None, None]
    return jnp.sqrt(1 - left) * x + jnp.sqrt(left) * net(x, time)


def time_features(time: Array, features: int) -> Array:
    """Sines and cosines [B, features] of times [B], of wavelengths up to 10,000."""
    half = features // 2
    rate = 10_000.0 ** (-jnp.arange(half) / (half - 1))
    angle = time[:, None] * rate
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def loss(net: Net, image: Array, key: Array, steps: int) -> Array:
    """Mean square of the noise that the net misses, at random times (eq. 14)."""
    time_key, noise_key = jax.random.split(key)
    time = jax.random.randint(time_key, (len(image),), 0, steps)
    noise = jax.random.normal(noise_key, image.shape)
    _, left = noise_schedule(steps)
    noisy = add_noise(image, noise, left[time])
    guess = noise_in(net, noisy, time, left[time])
    return jnp.mean(jnp.square(guess - noise))


def sample(net: Net, key: Array, shape: tuple[int, int, int, int], steps: int) -> Array:
    """Images [B, S, S, 3] of `shape`, from noise back in T steps (algorithm 2).

    What the net takes for the image is kept within [-1, 1] at each step.
    """
    betas, left = noise_schedule(steps)
    left_before = jnp.concatenate([jnp.ones(1), left[:-1]])
    first, rest = jax.random.split(key)

    def step_back(x: Array, time: Array) -> tuple[Array, None]:
        a, before, beta = left[time], left_before[time], betas[time]
        alike = jnp.full(shape[0], time)
        guess = noise_in(net, x, alike, left[alike])
        image = jnp.clip((x - jnp.sqrt(1 - a) * guess) / jnp.sqrt(a), -1, 1)
        mean = jnp.sqrt(before) * beta / (1 - a) * image
        mean = mean + jnp.sqrt(1 - beta) * (1 - before) / (1 - a) * x
        spread = jnp.sqrt(beta * (1 - before) / (1 - a))  # 0 in the last step
        noise = jax.random.normal(jax.random.fold_in(rest, time), shape)
        return mean + spread * noise, None

    x = jax.random.normal(first, shape)
    return jax.lax.scan(step_back, x, jnp.arange(steps)[::-1])[0]


def nearest(images: np.ndarray, known: np.ndarray) -> float:
    """Root mean square difference of images to the nearest of `known`, on average."""
    flat, others = (np.asarray(x).reshape(len(x), -1) for x in (images, known))
    distances = [np.square(others - image).mean(axis=-1).min() for image in flat]
    return float(np.sqrt(distances).mean())


def write_grid(path: Path, images: np.ndarray, columns: int, zoom: int) -> None:
    """A PNG of images [B, S, S, 3] in [-1, 1], row by row; a pixel is `zoom` wide."""
    levels = np.clip(np.round((np.asarray(images) + 1) * 127.5), 0, 255)
    rows = [
        np.concatenate(levels[i : i + columns], axis=1)
        for i in range(0, len(levels) - columns + 1, columns)
    ]
    grid = np.concatenate(rows).astype(np.uint8).repeat(zoom, 0).repeat(zoom, 1)
    Image.fromarray(grid).save(path)

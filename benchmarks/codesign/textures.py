"""Generated images of textures in ten classes, and two small networks that learn them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.learn.optimizers import adam_start, adam_step

CLASSES, SIZE, WIDTH, HEADS = 10, 8, 16, 2


def textures(seed: int, count: int) -> tuple[Any, Any]:
    """Images [N, 8, 8, 1] of waves, whose class is direction and length, and labels [N]."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    angle = np.pi * (labels % 5) / 5 + 0.12 * rng.standard_normal(count)
    length = np.where(labels < 5, 3.0, 5.0) * np.exp(0.06 * rng.standard_normal(count))
    phase = rng.uniform(0, 2 * np.pi, count)
    y, x = np.mgrid[:SIZE, :SIZE]
    along = np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y
    waves = np.sin(2 * np.pi * along / length[:, None, None] + phase[:, None, None])
    noisy = waves + 0.5 * rng.standard_normal(waves.shape)
    return noisy[..., None].astype(np.float32), labels


def resnet(params: Any, x: Any) -> Any:
    """Scores of a network of three residual blocks."""
    x = jax.nn.relu(_convolved(x, params["stem"]))
    for i in range(3):
        y = jax.nn.relu(_convolved(x, params[f"a{i}"]))
        x = jax.nn.relu(x + _convolved(y, params[f"b{i}"]))
    return (
        x.reshape(len(x), 4, 2, 4, 2, -1).mean((2, 4)).reshape(len(x), -1)
        @ params["head"]
    )


def vit(params: Any, x: Any) -> Any:
    """Scores of a transformer of two layers over patches of 2 x 2."""
    side = SIZE // 2
    x = x.reshape(len(x), side, 2, side, 2).transpose(0, 1, 3, 2, 4)
    x = x.reshape(len(x), side * side, 4) @ params["embed"] + params["places"]
    for i in range(2):
        y = _normal(x)
        q, k, v = (
            (y @ params[f"{n}{i}"]).reshape(len(x), side * side, HEADS, -1)
            for n in "qkv"
        )
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(WIDTH))
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape)
        x = x + mixed @ params[f"o{i}"]
        x = x + jax.nn.gelu(_normal(x) @ params[f"up{i}"]) @ params[f"down{i}"]
    return _normal(x).mean(1) @ params["head"]


def _normal(x: Any) -> Any:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)


def _convolved(x: Any, kernel: Any) -> Any:
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _shapes(name: str) -> dict[str, tuple[int, ...]]:
    if name == "resnet":
        blocks = {f"{n}{i}": (3, 3, 8, 8) for i in range(3) for n in "ab"}
        return {"stem": (3, 3, 1, 8), **blocks, "head": (128, CLASSES)}
    w = WIDTH
    square = {f"{n}{i}": (w, w) for i in range(2) for n in "qkvo"}
    wide = {f"up{i}": (w, 2 * w) for i in range(2)}
    wide |= {f"down{i}": (2 * w, w) for i in range(2)}
    places = {"places": (SIZE * SIZE // 4, w)}
    return {"embed": (4, w), **places, **square, **wide, "head": (w, CLASSES)}


NETWORKS: dict[str, Callable[[Any, Any], Any]] = {"resnet": resnet, "vit": vit}


def trained(name: str, seed: int, steps: int = 600) -> Any:
    """The parameters of a network after some steps of Adam on 4,000 textures."""
    images, labels = map(jnp.asarray, textures(seed, 4000))
    keys = jax.random.split(jax.random.key(seed), len(_shapes(name)))
    params = {
        n: jax.random.normal(key, shape) / np.sqrt(np.prod(shape[:-1]))
        for key, (n, shape) in zip(keys, _shapes(name).items(), strict=True)
    }

    def loss(params: Any, rows: Any) -> Any:
        scores = jax.nn.log_softmax(NETWORKS[name](params, images[rows]))
        return -jnp.take_along_axis(scores, labels[rows][:, None], 1).mean()

    @jax.jit
    def train(params: Any) -> Any:
        def step(carry: Any, number: Any) -> tuple[Any, None]:
            key = jax.random.fold_in(jax.random.key(seed), number)
            rows = jax.random.randint(key, (64,), 0, len(images))
            rate = 0.01 * (1 - number / steps)
            return adam_step(*carry, jax.grad(loss)(carry[0], rows), rate), None

        first = (params, adam_start(params))
        return jax.lax.scan(step, first, jnp.arange(steps))[0][0]

    return train(params)

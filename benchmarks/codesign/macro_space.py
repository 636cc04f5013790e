"""A small space of image models: three choices in each of six blocks, 729 models.

A stem, then blocks in pairs at 8 x 8, 4 x 4 and 2 x 2 pixels, with a projection between
pairs, then a linear head. A block is left out, a depthwise (inverted bottleneck) or a whole
convolution, with a residual. Letters in shapes: B images, H, W pixels, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.search.trials import Choice, Space

KINDS = ("skip", "mbconv", "fused")
CHANNELS = (8, 8, 16, 16, 32, 32)
EXPANSION = 2

SPACE = Space({f"block{i}": Choice(*KINDS) for i in range(len(CHANNELS))})

type Params = Mapping[str, Any]


def init(
    key: Any,
    kinds: Sequence[str] | None = None,
    *,
    colours: int = 1,
    classes: int = 10,
) -> dict[str, Any]:
    """Random parameters; without `kinds`, those of every kind in every block.

    colours: channels of the images.
    """
    keys = iter(jax.random.split(key, 64))

    def kernel(*shape: int) -> Any:
        fan_in = 1
        for size in shape[:-1]:
            fan_in *= size
        return jax.random.normal(next(keys), shape) * (2 / fan_in) ** 0.5

    params: dict[str, Any] = {"stem": kernel(3, 3, colours, CHANNELS[0])}
    before = CHANNELS[0]
    for index, size in enumerate(CHANNELS):
        if size != before:
            params[f"wider{index}"] = kernel(1, 1, before, size)
        wide, before = EXPANSION * size, size
        made = {
            "mbconv": {
                "expand": kernel(1, 1, size, wide),
                "depthwise": kernel(3, 3, 1, wide),
                "project": kernel(1, 1, wide, size),
            },
            "fused": {"conv": kernel(3, 3, size, size)},
        }
        for kind in KINDS[1:] if kinds is None else (kinds[index],):
            if kind != "skip":
                params[f"block{index}/{kind}"] = made[kind]
    params["head"] = jax.random.normal(next(keys), (before, classes)) * 0.1
    params["bias"] = jnp.zeros(classes)
    return params


def conv(x: Any, kernel: Any, groups: int = 1) -> Any:
    """Convolution of [B, H, W, C] that keeps H and W."""
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def normalized(x: Any) -> Any:
    """x with mean 0 and variance 1 over the channels of each pixel."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


def skip(params: Params, x: Any) -> Any:
    return x


def depthwise_conv(x: Any, kernel: Any) -> Any:
    """Depthwise convolution, as models for accelerators write it."""
    return conv(x, kernel, x.shape[-1])


def depthwise_sum(x: Any, kernel: Any) -> Any:
    """The same as a sum of shifted products: ten times as fast on a CPU, with gradients."""
    height, width = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return sum(
        padded[:, i : i + height, j : j + width] * kernel[i, j, 0]
        for i in range(3)
        for j in range(3)
    )


def mbconv(params: Params, x: Any, depthwise: Any = depthwise_conv) -> Any:
    y = jax.nn.relu(conv(normalized(x), params["expand"]))
    y = jax.nn.relu(depthwise(y, params["depthwise"]))
    return x + conv(y, params["project"])


def fused(params: Params, x: Any) -> Any:
    return x + jax.nn.relu(conv(normalized(x), params["conv"]))


BLOCKS = {"skip": skip, "mbconv": mbconv, "fused": fused}
CPU_BLOCKS = {**BLOCKS, "mbconv": partial(mbconv, depthwise=depthwise_sum)}
"""The same blocks, for training on a CPU."""


def apply(params: Params, images: Any, kinds: Sequence[Any]) -> Any:
    """Logits [B, classes] of images [B, 8, 8, colours].

    kinds: the kind of each block, by name, or by number as a traced value.
    """
    x = jax.nn.relu(conv(images, params["stem"]))
    for index, kind in enumerate(kinds):
        if index and CHANNELS[index] != CHANNELS[index - 1]:
            size, height, width, channels = x.shape
            x = x.reshape(size, height // 2, 2, width // 2, 2, channels).mean((2, 4))
            x = conv(x, params[f"wider{index}"])
        if isinstance(kind, str):
            x = BLOCKS[kind](params.get(f"block{index}/{kind}", {}), x)
        else:
            x = _switched(kind, params, index, x)
    return normalized(x.mean((1, 2))) @ params["head"] + params["bias"]


def _switched(kind: Any, params: Params, index: int, x: Any) -> Any:
    """The block of a number among `KINDS`; only that one is computed."""

    def branch(name: str) -> Any:
        return lambda p, x: CPU_BLOCKS[name](p.get(f"block{index}/{name}", {}), x)

    return jax.lax.switch(kind, [branch(name) for name in KINDS], params, x)

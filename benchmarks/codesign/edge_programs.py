"""Forward passes of one example on edge devices, as designs are logged for them.

They stand in for the applications of PRIME's data set (Kumar et al., ICLR 2022), of which
MobileNetV2 and the U-Net are published; its other networks are named only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

Target = tuple[Callable[..., Any], tuple[Any, ...]]


def _shape(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.bfloat16)


def _conv(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )  # fmt: skip


type Stage = tuple[int, int, int, int, int, bool]
"""Blocks, kernel size, stride, expansion, output channels, and whether they are fused."""


def _bottlenecks(stem: int, stages: Sequence[Stage], head: int, pixels: int) -> Target:
    """A classifier of inverted bottlenecks; a fused one expands by a whole convolution."""
    blocks: list[tuple[list[Any], int, bool, bool]] = []
    inputs = stem
    for count, size, stride, expansion, outputs, is_fused in stages:
        for number in range(count):
            inner = inputs * expansion
            expand = _shape(*((size, size) if is_fused else (1, 1)), inputs, inner)
            weights = [expand, _shape(1, 1, inner, outputs)]
            if not is_fused:
                weights.insert(1, _shape(size, size, 1, inner))
            step = 1 if number else stride
            is_residual = step == 1 and inputs == outputs
            blocks.append((weights, step, is_fused, is_residual))
            inputs = outputs
    weights = [
        _shape(3, 3, 3, stem), [w for w, *_ in blocks],
        _shape(1, 1, inputs, head), _shape(head, 1000),
    ]  # fmt: skip

    def forward(weights: Any, x: Any) -> Any:
        first, inner, last, classes = weights
        x = jax.nn.relu6(_conv(x, first, 2))
        for w, (_, step, is_fused, is_residual) in zip(inner, blocks, strict=True):
            y = jax.nn.relu6(_conv(x, w[0], step if is_fused else 1))
            if not is_fused:
                y = jax.nn.relu6(_conv(y, w[1], step, groups=y.shape[-1]))
            y = _conv(y, w[-1])
            x = x + y if is_residual else y
        return jax.nn.relu6(_conv(x, last)).mean((1, 2)) @ classes

    return forward, (weights, _shape(1, pixels, pixels, 3))


def mobilenet_v2() -> Target:
    """MobileNetV2 on 224 pixels (Sandler et al., CVPR 2018)."""
    stages = [
        (1, 3, 1, 1, 16, False), (2, 3, 2, 6, 24, False), (3, 3, 2, 6, 32, False),
        (4, 3, 2, 6, 64, False), (3, 3, 1, 6, 96, False), (3, 3, 2, 6, 160, False),
        (1, 3, 1, 6, 320, False),
    ]  # fmt: skip
    return _bottlenecks(32, stages, 1280, 224)


def efficientnet_edge() -> Target:
    """EfficientNet-EdgeTPU-S on 224 pixels, whose early blocks are fused."""
    stages = [
        (1, 3, 1, 4, 24, True), (2, 3, 2, 8, 32, True), (4, 3, 2, 8, 48, True),
        (5, 5, 2, 8, 96, False), (4, 5, 1, 8, 144, False), (2, 5, 2, 8, 192, False),
    ]  # fmt: skip
    return _bottlenecks(32, stages, 1280, 224)


def unet() -> Target:
    """A U-Net of five levels, 32 to 512 channels, on 256 pixels (Ronneberger, 2015)."""
    widths = [32, 64, 128, 256, 512]
    down, inputs = [], 3
    for width in widths:
        down.append([_shape(3, 3, inputs, width), _shape(3, 3, width, width)])
        inputs = width
    up = [
        [_shape(2, 2, 2 * w, w), _shape(3, 3, 2 * w, w), _shape(3, 3, w, w)]
        for w in reversed(widths[:-1])
    ]

    def pair(x: Any, one: Any, other: Any) -> Any:
        return jax.nn.relu(_conv(jax.nn.relu(_conv(x, one)), other))

    def forward(weights: Any, x: Any) -> Any:
        down, up, last = weights
        kept: list[Any] = []
        for number, (one, other) in enumerate(down):
            if number:
                n, h, w, c = x.shape
                x = x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
            x = pair(x, one, other)
            kept.append(x)
        for (wider, one, other), skip in zip(up, reversed(kept[:-1]), strict=True):
            x = jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
            x = pair(jnp.concatenate([skip, _conv(x, wider)], -1), one, other)
        return _conv(x, last)

    return forward, ([down, up, _shape(1, 1, 32, 2)], _shape(1, 256, 256, 3))


def _recurrent(layers: int, inputs: int, steps: int, classes: int) -> Target:
    """Layers of an LSTM of 2,048 units with a projection to 640, then a dense layer."""

    def cell(carry: Any, x: Any, w: Any) -> tuple[Any, Any]:
        h, c = carry
        i, f, g, o = jnp.split(x @ w["in"] + h @ w["own"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = (jax.nn.sigmoid(o) * jnp.tanh(c)) @ w["project"]
        return (h, c), h

    def forward(weights: Any, x: Any) -> Any:
        inner, last = weights
        for w in inner:
            start = jnp.zeros((1, 640), x.dtype), jnp.zeros((1, 2048), x.dtype)
            _, x = jax.lax.scan(lambda s, v, w=w: cell(s, v, w), start, x)
        return x @ last

    sizes = [inputs, *[640] * (layers - 1)]
    inner = [
        {"in": _shape(n, 8192), "own": _shape(640, 8192), "project": _shape(2048, 640)}
        for n in sizes
    ]
    return forward, ([inner, _shape(640, classes)], _shape(steps, 1, inputs))


def rnn_encoder() -> Target:
    """Encoder of a speech transducer on 8 steps: eight layers (He et al., 2019)."""
    return _recurrent(8, 512, 8, 640)


def rnn_decoder() -> Target:
    """Prediction network of a speech transducer on 8 steps: two layers."""
    return _recurrent(2, 640, 8, 4096)

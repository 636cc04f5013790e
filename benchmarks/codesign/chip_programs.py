"""Forward passes that chips are compared on: stand-ins for published applications.

Each takes its batch, as targets of searches for designs do. Numbers are bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from zoo.efficientnet import inference as efficientnets

Target = tuple[Callable[..., Any], tuple[Any, ...]]


def _shape(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.bfloat16)


def _encoder(batch: int, layers: int, width: int, heads: int, length: int) -> Target:
    """A BERT encoder over embedded tokens."""

    def norm(x: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True))

    def block(x: Any, w: dict[str, Any]) -> tuple[Any, None]:
        parts = jnp.einsum("btd,dchk->cbhtk", x, w["qkv"])
        scores = jnp.einsum("bhtk,bhsk->bhts", parts[0], parts[1])
        mixed = jnp.einsum("bhts,bhsk->bthk", jax.nn.softmax(scores), parts[2])
        x = norm(x + jnp.einsum("bthk,hkd->btd", mixed, w["out"]))
        return norm(x + jax.nn.gelu(x @ w["up"]) @ w["down"]), None

    size = width // heads
    weights = {
        "qkv": _shape(layers, width, 3, heads, size),
        "out": _shape(layers, heads, size, width),
        "up": _shape(layers, width, 4 * width),
        "down": _shape(layers, 4 * width, width),
    }

    def forward(weights: Any, x: Any) -> Any:
        return jax.lax.scan(block, x, weights)[0]

    return forward, (weights, _shape(batch, length, width))


def bert_base(batch: int = 8) -> Target:
    """BERT-base on 128 tokens."""
    return _encoder(batch, 12, 768, 12, 128)


def bert_large(batch: int = 8) -> Target:
    """BERT-large on 384 tokens."""
    return _encoder(batch, 24, 1024, 16, 384)


def mlp(batch: int = 200) -> Target:
    """Five dense layers of 2,048 units, as a ranking model has."""
    weights = [_shape(2048, 2048)] * 5

    def forward(weights: Sequence[Any], x: Any) -> Any:
        for w in weights:
            x = jax.nn.relu(x @ w)
        return x

    return forward, (weights, _shape(batch, 2048))


def lstm(batch: int = 16) -> Target:
    """Four layers of 1,024 units over 50 steps."""

    def cell(carry: Any, x: Any, w: dict[str, Any]) -> tuple[Any, Any]:
        h, c = carry
        i, f, g, o = jnp.split(x @ w["in"] + h @ w["own"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def forward(weights: Sequence[dict[str, Any]], x: Any) -> Any:
        zeros = jnp.zeros((x.shape[1], 1024), x.dtype)
        for w in weights:
            _, x = jax.lax.scan(lambda s, v, w=w: cell(s, v, w), (zeros, zeros), x)
        return x

    one = {"in": _shape(1024, 4096), "own": _shape(1024, 4096)}
    return forward, ([one] * 4, _shape(50, batch, 1024))


def _conv(x: Any, w: Any, stride: int = 1) -> Any:
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def resnet50(batch: int = 8) -> Target:
    """ResNet-50 on 224 pixels, batch norm folded into the convolutions."""
    stages = [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]
    weights: dict[str, Any] = {"stem": _shape(7, 7, 3, 64), "head": _shape(2048, 1000)}
    inputs = 64
    for s, (width, count, _) in enumerate(stages):
        for b in range(count):
            name = f"{s}_{b}"
            weights[name] = [
                _shape(1, 1, inputs, width),
                _shape(3, 3, width, width),
                _shape(1, 1, width, 4 * width),
            ]
            if b == 0:
                weights[name].append(_shape(1, 1, inputs, 4 * width))
            inputs = 4 * width

    def forward(weights: dict[str, Any], x: Any) -> Any:
        x = jax.nn.relu(_conv(x, weights["stem"], 2))
        x = jax.lax.reduce_window(
            x,
            jnp.array(-jnp.inf, x.dtype),
            jax.lax.max,
            (1, 3, 3, 1),
            (1, 2, 2, 1),
            "SAME",
        )
        for s, (_, count, stride) in enumerate(stages):
            for b in range(count):
                ws, step = weights[f"{s}_{b}"], stride if b == 0 else 1
                y = jax.nn.relu(_conv(x, ws[0]))
                y = jax.nn.relu(_conv(y, ws[1], step))
                x = x if len(ws) == 3 else _conv(x, ws[3], step)
                x = jax.nn.relu(x + _conv(y, ws[2]))
        return x.mean((1, 2)) @ weights["head"]

    return forward, (weights, _shape(batch, 224, 224, 3))


def cnn(batch: int = 32) -> Target:
    """Twelve convolutions of 3 x 3 on 56 pixels, 128 to 512 channels."""
    widths = [128] * 4 + [256] * 4 + [512] * 4
    weights, inputs = [], 128
    for width in widths:
        weights.append(_shape(3, 3, inputs, width))
        inputs = width

    def forward(weights: Sequence[Any], x: Any) -> Any:
        for i, w in enumerate(weights):
            x = jax.nn.relu(_conv(x, w, 2 if i in (4, 8) else 1))
        return x

    return forward, (weights, _shape(batch, 56, 56, 128))


def b0(batch: int = 8) -> Target:
    """EfficientNet-B0."""
    return efficientnets["b0"](batch=batch)


def b3(batch: int = 8) -> Target:
    """EfficientNet-B3."""
    return efficientnets["b3"](batch=batch)


def b7(batch: int = 8) -> Target:
    """EfficientNet-B7."""
    return efficientnets["b7"](batch=batch)

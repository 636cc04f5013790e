"""A residual network of bottlenecks, whose batch norms are frozen.

Letters: B batch, R, C rows and columns of features, D features.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.step import Tree, bfloat16, shape

STAGES = (3, 4, 6, 3)


def conv(x: Array, weights: Tree, stride: int = 1) -> Array:
    """`x` [B, R, C, D] convolved, scaled as a batch norm that is frozen would do."""
    y = lax.conv_general_dilated(
        x, bfloat16(weights["kernel"]), (stride, stride), "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    frozen = lax.stop_gradient(weights["frozen"])
    scale = frozen["scale"] * lax.rsqrt(frozen["variance"] + 1e-5)
    shift = frozen["bias"] - frozen["mean"] * scale
    return y * bfloat16(scale) + bfloat16(shift)


def bottleneck(x: Array, weights: Tree, stride: int) -> Array:
    """[B, R / stride, C / stride, 4 D] of x."""
    y = jax.nn.relu(conv(x, weights["reduce"]))
    y = jax.nn.relu(conv(y, weights["middle"], stride))
    y = conv(y, weights["expand"])
    if "project" in weights:
        x = conv(x, weights["project"], stride)
    return jax.nn.relu(x + y)


def backbone(params: Tree, images: Array) -> Array:
    """Features [B, side / 32, side / 32, 2048] of images [B, side, side, 3]."""
    x = jax.nn.relu(conv(images, params["stem"], 2))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for i, blocks in enumerate(params["stages"]):
        for j, weights in enumerate(blocks):
            x = bottleneck(x, weights, 2 if i and not j else 1)
    return x


def conv_shapes(side: int, before: int, after: int) -> Tree:
    """Parameters of `conv`."""
    names = "scale", "bias", "mean", "variance"
    frozen = {name: shape(after) for name in names}
    return {"kernel": shape(side, side, before, after), "frozen": frozen}


def backbone_shapes() -> Tree:
    """Parameters of `backbone`."""
    stages, before = [], 64
    for i, depth in enumerate(STAGES):
        width, blocks = 64 * 2**i, []
        for j in range(depth):
            block = {
                "reduce": conv_shapes(1, before, width),
                "middle": conv_shapes(3, width, width),
                "expand": conv_shapes(1, width, 4 * width),
            }
            more = {} if j else {"project": conv_shapes(1, before, 4 * width)}
            blocks.append({**block, **more})
            before = 4 * width
        stages.append(blocks)
    return {"stem": conv_shapes(7, 3, 64), "stages": stages}

"""A small ResNet, ViT and EfficientNet, on two data sets, as targets of `nas rewrite`.

Each is a function (params, x) -> scores, in plain JAX; norms are over the batch, as in
training. The data are scikit-learn's handwritten digits, and the zoo's made images, whose
16 classes are a shape and a colour: `benchmarks/codesign/small_models.py:vit_shapes`.
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from meshwright.codesign import nas
from zoo.images import made_batches

Params = dict[str, Any]


@cache
def digits() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """1,797 images [8, 8, 1] in [0, 1] in a random order: 1,000, 397 and 400 of them."""
    from sklearn.datasets import load_digits  # of the extra `search`

    found: Any = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    x = (found.images[order, :, :, None] / 16).astype(np.float32)
    y = found.target[order].astype(np.int32)
    ends = {
        "train": slice(1000),
        "validation": slice(1000, 1397),
        "test": slice(1397, None),
    }
    return {name: (x[at], y[at]) for name, at in ends.items()}


@cache
def shapes() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Made images [16, 16, 3] of 16 classes: 1,000, and 2,000 each to judge by."""
    sizes = {"train": 1000, "validation": 2000, "test": 2000}
    found = {}
    for seed, (name, count) in enumerate(sizes.items()):
        made = next(made_batches(count, 16, 16, seed))
        found[name] = (made["image"], made["label"])
    return found


# -- layers ------------------------------------------------------------------------


class Keys:
    """Fresh keys, one after another."""

    def __init__(self, key: Array) -> None:
        self.key = key

    def normal(self, *shape: int, fan_in: int) -> Array:
        """He's initial values."""
        self.key, key = jax.random.split(self.key)
        return jax.random.normal(key, shape) * (2 / fan_in) ** 0.5


def new_conv(
    keys: Keys, window: int, inputs: int, outputs: int, groups: int = 1
) -> Params:
    """A convolution and the norm behind it."""
    inside = inputs // groups
    kernel = keys.normal(window, window, inside, outputs, fan_in=window**2 * inside)
    return {"kernel": kernel, "scale": jnp.ones(outputs), "bias": jnp.zeros(outputs)}


def new_dense(keys: Keys, inputs: int, outputs: int) -> Params:
    """A dense layer."""
    kernel = keys.normal(inputs, outputs, fan_in=inputs)
    return {"kernel": kernel, "bias": jnp.zeros(outputs)}


def conv(p: Params, x: Array, stride: int = 1) -> Array:
    """A convolution, dense or depthwise by its kernel, and a norm over the batch."""
    y = lax.conv_general_dilated(
        x,
        p["kernel"],
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] // p["kernel"].shape[2],
    )
    centred = y - y.mean((0, 1, 2))
    variance = jnp.square(centred).mean((0, 1, 2))
    return centred * lax.rsqrt(variance + 1e-3) * p["scale"] + p["bias"]


def dense(p: Params, x: Array) -> Array:
    """A dense layer over the last dim."""
    return x @ p["kernel"] + p["bias"]


def layer_norm(p: Params, x: Array) -> Array:
    """A norm over the last dim."""
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-6) * p["scale"] + p["bias"]


def _task(apply: Any, init: Any, data: Any) -> nas.Task:
    return nas.Task(apply, init, **data, rate=1e-2, batch=32, steps=600)


# -- ResNet ------------------------------------------------------------------------

WIDTHS = (8, 16)


def resnet_init(channels: int, classes: int, key: Array) -> Params:
    """Two stages of two basic blocks (He et al., 2016)."""
    keys = Keys(key)
    params: Params = {"stem": new_conv(keys, 3, channels, WIDTHS[0]), "blocks": []}
    inputs = WIDTHS[0]
    for width in WIDTHS:
        for _ in range(2):
            block = {
                "first": new_conv(keys, 3, inputs, width),
                "second": new_conv(keys, 3, width, width),
            }
            if inputs != width:
                block["around"] = new_conv(keys, 1, inputs, width)
            params["blocks"].append(block)
            inputs = width
    return params | {"classes": new_dense(keys, inputs, classes)}


def resnet_apply(params: Params, x: Array) -> Array:
    """Scores [B, K] of images [B, S, S, C]; the body sees 8 x 8 pixels."""
    x = jax.nn.relu(conv(params["stem"], x, x.shape[1] // 8))
    for block in params["blocks"]:
        stride = 2 if "around" in block else 1
        y = jax.nn.relu(conv(block["first"], x, stride))
        y = conv(block["second"], y)
        x = jax.nn.relu(y + (conv(block["around"], x, 2) if "around" in block else x))
    return dense(params["classes"], x.mean((1, 2)))


def resnet() -> nas.Task:
    """The ResNet on digits."""
    return _task(resnet_apply, partial(resnet_init, 1, 10), digits())


def resnet_shapes() -> nas.Task:
    """The ResNet on made images."""
    return _task(resnet_apply, partial(resnet_init, 3, 16), shapes())


# -- ViT ---------------------------------------------------------------------------

TOKENS, D, HEADS, LAYERS = 16, 16, 2, 2


def vit_init(pixels: int, classes: int, key: Array) -> Params:
    """Two blocks of attention and MLP on 16 patches (Dosovitskiy et al., 2021)."""
    keys = Keys(key)

    def norm() -> Params:
        return {"scale": jnp.ones(D), "bias": jnp.zeros(D)}

    def block() -> Params:
        return {
            "norm": norm(),
            "qkv": new_dense(keys, D, 3 * D),
            "out": new_dense(keys, D, D),
            "mlp_norm": norm(),
            "wide": new_dense(keys, D, 4 * D),
            "narrow": new_dense(keys, 4 * D, D),
        }

    return {
        "patches": new_dense(keys, pixels, D),
        "positions": 0.5 * keys.normal(TOKENS, D, fan_in=2),
        "blocks": [block() for _ in range(LAYERS)],
        "norm": norm(),
        "classes": new_dense(keys, D, classes),
    }


def attention(p: Params, x: Array) -> Array:
    """Multi-head attention among all tokens."""
    batch, tokens, width = x.shape
    q, k, v = jnp.split(dense(p["qkv"], x), 3, axis=-1)
    q, k, v = (a.reshape(batch, tokens, HEADS, width // HEADS) for a in (q, k, v))
    scores = jnp.einsum("bnhd,bmhd->bhnm", q, k) * (width // HEADS) ** -0.5
    y = jnp.einsum("bhnm,bmhd->bnhd", jax.nn.softmax(scores), v)
    return dense(p["out"], y.reshape(x.shape))


def vit_apply(params: Params, x: Array) -> Array:
    """Scores [B, K] of images [B, S, S, C], in 4 x 4 patches."""
    batch, size, _, channels = x.shape
    x = x.reshape(batch, 4, size // 4, 4, size // 4, channels)
    x = x.swapaxes(2, 3).reshape(batch, TOKENS, -1)
    x = dense(params["patches"], x) + params["positions"]
    for p in params["blocks"]:
        x = x + attention(p, layer_norm(p["norm"], x))
        y = jax.nn.gelu(dense(p["wide"], layer_norm(p["mlp_norm"], x)))
        x = x + dense(p["narrow"], y)
    return dense(params["classes"], layer_norm(params["norm"], x).mean(1))


def vit() -> nas.Task:
    """The ViT on digits."""
    return _task(vit_apply, partial(vit_init, 4, 10), digits())


def vit_shapes() -> nas.Task:
    """The ViT on made images."""
    return _task(vit_apply, partial(vit_init, 48, 16), shapes())


# -- EfficientNet ------------------------------------------------------------------

STAGES = ((8, 12, 4, 2), (12, 12, 4, 1), (12, 16, 4, 2))
"""Channels in and out, expansion and stride of each inverted bottleneck."""


def efficientnet_init(channels: int, classes: int, key: Array) -> Params:
    """Three inverted bottlenecks with squeeze and excitation (Tan and Le, 2019)."""
    keys = Keys(key)

    def block(inputs: int, outputs: int, expand: int) -> Params:
        inside, few = inputs * expand, max(inputs // 4, 1)
        return {
            "expand": new_conv(keys, 1, inputs, inside),
            "depthwise": new_conv(keys, 3, inside, inside, groups=inside),
            "squeeze": new_dense(keys, inside, few),
            "excite": new_dense(keys, few, inside),
            "project": new_conv(keys, 1, inside, outputs),
        }

    return {
        "stem": new_conv(keys, 3, channels, STAGES[0][0]),
        "blocks": [block(*sizes[:3]) for sizes in STAGES],
        "head": new_conv(keys, 1, STAGES[-1][1], 48),
        "classes": new_dense(keys, 48, classes),
    }


def efficientnet_apply(params: Params, x: Array) -> Array:
    """Scores [B, K] of images [B, S, S, C]; the body sees 8 x 8 pixels."""
    x = jax.nn.silu(conv(params["stem"], x, x.shape[1] // 8))
    for p, (inputs, outputs, _, stride) in zip(params["blocks"], STAGES, strict=True):
        y = jax.nn.silu(conv(p["expand"], x))
        y = jax.nn.silu(conv(p["depthwise"], y, stride))
        few = jax.nn.silu(dense(p["squeeze"], y.mean((1, 2))))
        y = y * jax.nn.sigmoid(dense(p["excite"], few))[:, None, None]
        y = conv(p["project"], y)
        x = x + y if stride == 1 and inputs == outputs else y
    x = jax.nn.silu(conv(params["head"], x))
    return dense(params["classes"], x.mean((1, 2)))


def efficientnet() -> nas.Task:
    """The EfficientNet on digits."""
    return _task(efficientnet_apply, partial(efficientnet_init, 1, 10), digits())


def efficientnet_shapes() -> nas.Task:
    """The EfficientNet on made images."""
    return _task(efficientnet_apply, partial(efficientnet_init, 3, 16), shapes())

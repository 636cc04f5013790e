"""A U-Net that makes images of texts, by guessing the noise in their latents.

Letters: B batch, S sequence, C channels, N heads, H features of a head.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.language import adamw
from benchmarks.strangers.step import (
    Target,
    Tree,
    bfloat16,
    shape,
    standardized,
    whole,
)

GROUPS = 32
HEAD = 64
TIMES = 1000
EMA_DECAY = 0.9999
FORGET_TEXT = 0.1  # share of texts left out, for guidance without a classifier

# -- blocks ------------------------------------------------------------------------


def conv(x: Array, weights: Tree, stride: int = 1) -> Array:
    """[B, height, width, C'] of x [B, height, width, C]; w: kernel, b: shift."""
    y = lax.conv_general_dilated(
        x, weights["w"], (stride, stride), "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    return y + weights["b"]


def group_norm(x: Array, weights: Tree) -> Array:
    """`x` [B, height, width, C] standardized over places and C / 32, then s and b."""
    batch, height, width, channels = x.shape
    y = x.astype(jnp.float32).reshape(batch, height, width, GROUPS, channels // GROUPS)
    mean = jnp.mean(y, (1, 2, 4), keepdims=True)
    variance = jnp.var(y, (1, 2, 4), keepdims=True)
    y = ((y - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return bfloat16(y * weights["s"] + weights["b"])


def res_block(x: Array, weights: Tree, time: Array) -> Array:
    """[B, height, width, C'] of x [B, height, width, C], time [B, 4 base] added."""
    y = conv(jax.nn.silu(group_norm(x, weights["n1"])), weights["c1"])
    y = y + (jax.nn.silu(time) @ weights["t"])[:, None, None]
    y = conv(jax.nn.silu(group_norm(y, weights["n2"])), weights["c2"])
    if "skip" in weights:
        x = x @ weights["skip"]
    return x + y


def attention(q: Array, kv: Array) -> Array:
    """[B, S, C] of queries [B, S, C] on keys and values [B, S', 2 C]."""
    k, v = jnp.split(kv, 2, -1)
    q, k, v = (x.reshape(*x.shape[:2], -1, HEAD) for x in (q, k, v))
    scores = jnp.einsum("bqnh,bknh->bnqk", q, k).astype(jnp.float32)
    weights = jax.nn.softmax(scores / math.sqrt(HEAD), axis=-1).astype(v.dtype)
    mixed = jnp.einsum("bnqk,bknh->bqnh", weights, v)
    return mixed.reshape(*mixed.shape[:2], -1)


def attending(x: Array, weights: Tree, text: Array) -> Array:
    """[B, height, width, C] of the like: places on places, on text [B, 77, F], an MLP.

    s: three scales; up: to the features of the MLP and their gate.
    """
    y = group_norm(x, weights["n"]).reshape(x.shape[0], -1, x.shape[-1])
    z = bfloat16(standardized(y) * weights["s"][0])
    y = y + attention(z @ weights["q1"], z @ weights["kv1"]) @ weights["o1"]
    z = bfloat16(standardized(y) * weights["s"][1])
    y = y + attention(z @ weights["q2"], text @ weights["kv2"]) @ weights["o2"]
    z = bfloat16(standardized(y) * weights["s"][2])
    z, gate = jnp.split(z @ weights["up"], 2, -1)
    y = y + (z * jax.nn.gelu(gate)) @ weights["down"]
    return x + y.reshape(x.shape)


def unet_block(x: Array, weights: Tree, time: Array, text: Array) -> Array:
    """A residual block, and attention where the level has it."""
    x = res_block(x, weights["res"], time)
    return attending(x, weights["att"], text) if "att" in weights else x


def doubled(x: Array) -> Array:
    """`x` [B, height, width, C] with each place four times."""
    batch, height, width, channels = x.shape
    return jax.image.resize(x, (batch, 2 * height, 2 * width, channels), "nearest")


def unet(params: Tree, x: Array, times: Array, text: Array) -> Array:
    """A guess of the noise in x [B, 64, 64, 4] at times [B], for text [B, 77, F]."""
    base = params["stem"]["b"].shape[0]
    rates = jnp.exp(-math.log(10_000) * jnp.arange(base // 2) / (base // 2))
    angles = times[:, None] * rates
    time = bfloat16(jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1))
    time = jax.nn.silu(time @ params["t1"]) @ params["t2"]
    x = conv(x, params["stem"])
    skips = []
    for level in params["down"]:
        x = unet_block(x, level["block"], time, text)
        skips.append(x)
        if "halve" in level:
            x = conv(x, level["halve"], 2)
    x = unet_block(x, params["middle"], time, text)
    for level in params["up"]:
        x = jnp.concatenate([x, skips.pop()], axis=-1)
        x = unet_block(x, level["block"], time, text)
        if "double" in level:
            x = conv(doubled(x), level["double"])
    return conv(jax.nn.silu(group_norm(x, params["n"])), params["out"])


# -- the step ----------------------------------------------------------------------


def diffusion_loss(params: Tree, batch: Tree, key: Array) -> Array:
    """Mean squared error of the noise in latents x [B, 64, 64, 4] at random times."""
    latents = batch["x"]
    count = latents.shape[0]
    time_key, noise_key, text_key = jax.random.split(key, 3)
    times = jax.random.randint(time_key, (count,), 0, TIMES)
    noise = jax.random.normal(noise_key, latents.shape)
    betas = jnp.linspace(0.00085**0.5, 0.012**0.5, TIMES) ** 2
    kept = jnp.cumprod(1 - betas)[times][:, None, None, None]
    noisy = jnp.sqrt(kept) * latents + jnp.sqrt(1 - kept) * noise
    is_told = jax.random.bernoulli(text_key, 1 - FORGET_TEXT, (count, 1, 1))
    text = jnp.where(is_told, batch["text"], 0.0)
    guess = unet(bfloat16(params), bfloat16(noisy), times, bfloat16(text))
    return jnp.mean(jnp.square(guess.astype(jnp.float32) - noise))


def diffusion_step(state: Tree, batch: Tree) -> tuple[Tree, Array]:
    """New state and the loss; ema: parameters averaged over all steps."""
    key = jax.random.fold_in(jax.random.key(42), state["optimizer"]["count"])
    loss_fn = jax.value_and_grad(diffusion_loss)
    loss, gradients = loss_fn(state["params"], batch, key)
    params, optimizer = adamw(state["params"], gradients, state["optimizer"])
    ema = jax.tree.map(
        lambda old, new: EMA_DECAY * old + (1 - EMA_DECAY) * new, state["ema"], params
    )
    return {"params": params, "ema": ema, "optimizer": optimizer}, loss


# -- shapes ------------------------------------------------------------------------


def conv_shapes(before: int, after: int) -> Tree:
    """Parameters of `conv` with a kernel of 3 by 3."""
    return {"w": shape(3, 3, before, after), "b": shape(after)}


def norm_shapes(width: int) -> Tree:
    """Parameters of `group_norm`."""
    return {"s": shape(width), "b": shape(width)}


def block_shapes(before: int, after: int, time: int, features: int) -> Tree:
    """Parameters of `unet_block`, without attention where a text has no features."""
    res: Tree = {
        "n1": norm_shapes(before), "c1": conv_shapes(before, after),
        "n2": norm_shapes(after), "c2": conv_shapes(after, after),
        "t": shape(time, after),
    }  # fmt: skip
    if before != after:
        res["skip"] = shape(before, after)
    if not features:
        return {"res": res}
    square = shape(after, after)
    att = {
        "n": norm_shapes(after), "s": shape(3, after),
        "q1": square, "kv1": shape(after, 2 * after), "o1": square,
        "q2": square, "kv2": shape(features, 2 * after), "o2": square,
        "up": shape(after, 8 * after), "down": shape(4 * after, after),
    }  # fmt: skip
    return {"res": res, "att": att}


def unet_shapes(base: int, features: int) -> Tree:
    """Parameters of `unet`: three levels, attention at the lower two."""
    time = 4 * base
    levels = ((base, 0), (2 * base, features), (4 * base, features))
    down: list[Tree] = []
    up: list[Tree] = []
    x = base
    for i, (width, seen) in enumerate(levels):
        down.append({"block": block_shapes(x, width, time, seen)})
        x = width
        if i < len(levels) - 1:
            down[-1]["halve"] = conv_shapes(width, width)
    middle = block_shapes(x, x, time, features)
    for i, (width, seen) in reversed(list(enumerate(levels))):
        up.append({"block": block_shapes(x + width, width, time, seen)})
        x = width
        if i:
            up[-1]["double"] = conv_shapes(width, width)
    return {
        "t1": shape(base, time), "t2": shape(time, time), "stem": conv_shapes(4, base),
        "down": down, "middle": middle, "up": up,
        "n": norm_shapes(base), "out": conv_shapes(base, 4),
    }  # fmt: skip


def unet_diff(
    batch: int = 128, side: int = 64, base: int = 192, features: int = 768
) -> Target:
    """Rombach et al., 2022, one block a level each way, in bfloat16."""
    params: Any = unet_shapes(base, features)
    optimizer = {"mu": params, "nu": params, "count": whole()}
    state = {"params": params, "ema": params, "optimizer": optimizer}
    images = {"x": shape(batch, side, side, 4), "text": shape(batch, 77, features)}
    return diffusion_step, (state, images)

"""A sampler of videos: noise to latents in so many steps, then to frames.

Parameters are in bfloat16, latents in float32.

Letters: B batch, T frames, R, C rows and columns of latents, S patches of a frame,
D features, N heads, H features of a head, W words of a text, L layers.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.gpt import half
from benchmarks.strangers.step import Target, Tree, bfloat16, shape

HEADS = 16
STEPS = 30
GUIDANCE = 7.0
PATCH = 2
WAVES = 256
SHIFT = 3.0  # how much longer the noisy times last

# -- the transformer ---------------------------------------------------------------


def linear(x: Array, weights: Tree) -> Array:
    """`x` [..., D] through a kernel and a bias."""
    return x @ weights["w"] + weights["b"]


def modulated(x: Array, shift: Array, scale: Array) -> Array:
    """`x` [B, T, S, D] standardized, scaled and shifted [B, 1, 1, D], in bfloat16."""
    y = jax.nn.standardize(x.astype(jnp.float32), epsilon=1e-6)
    return bfloat16(y * (1 + scale) + shift)


def unit(x: Array, scale: Array) -> Array:
    """`x` [..., H] over its root mean square, scaled [H]."""
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + 1e-6)
    return bfloat16(y) * scale


def attend(x: Array, weights: Tree, seen: Array | None = None, bias: Any = 0) -> Array:
    """[..., Q, D] of x [..., Q, D] on what is seen [..., K, D], or on each other."""
    seen = x if seen is None else seen
    q = unit(jnp.einsum("...qd,dnh->...qnh", x, weights["q"]), weights["q_norm"])
    k, v = jnp.einsum("...kd,dinh->i...knh", seen, weights["kv"])
    k = unit(k, weights["k_norm"])
    scores = jnp.einsum("...qnh,...knh->...nqk", q, k) / math.sqrt(q.shape[-1])
    shares = jax.nn.softmax(scores.astype(jnp.float32) + bias, axis=-1)
    mixed = jnp.einsum("...nqk,...knh->...qnh", bfloat16(shares), v)
    return jnp.einsum("...qnh,nhd->...qd", mixed, weights["o"])


def video_layer(x: Array, weights: Tree, condition: Tree) -> Array:
    """[B, T, S, D] of x: patches of a frame, frames of a patch, words, an MLP.

    condition: time [B, 9, D], words [B, W, D] and what is added to their scores.
    """
    time = condition["time"].astype(jnp.float32) + weights["table"].astype(jnp.float32)
    time = jnp.moveaxis(time, 1, 0)[:, :, None, None]
    shift, scale, gate = time[:3]
    x = x + bfloat16(gate) * attend(modulated(x, shift, scale), weights["space"])
    shift, scale, gate = time[3:6]
    y = jnp.swapaxes(modulated(x, shift, scale), 1, 2)
    y = jnp.swapaxes(attend(y, weights["time"]), 1, 2)
    x = x + bfloat16(gate) * y
    batch, frames, places, width = x.shape
    y = x.reshape(batch, frames * places, width)
    y = attend(y, weights["words"], condition["words"], condition["bias"])
    x = x + y.reshape(x.shape)
    shift, scale, gate = time[6:]
    y = linear(modulated(x, shift, scale), weights["up"])
    y = linear(jax.nn.gelu(y, approximate=True), weights["down"])
    return x + bfloat16(gate) * y


def waves(places: Array, width: int) -> Array:
    """Sines and cosines [..., D] of places."""
    rates = jnp.exp(-math.log(10_000) * jnp.arange(width // 2) / (width // 2))
    angles = places[..., None].astype(jnp.float32) * rates
    return bfloat16(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1))


def velocity(params: Tree, latents: Array, time: Array, texts: Tree) -> Array:
    """Where latents [B, T, R, C, 4] go at a time [B], of texts: words and bias."""
    batch, frames, rows, columns, channels = latents.shape
    split = (batch, frames, rows // PATCH, PATCH, columns // PATCH, PATCH, channels)
    patches = bfloat16(latents).reshape(split).swapaxes(3, 4)
    patches = patches.reshape(batch, frames, -1, PATCH * PATCH * channels)
    x = linear(patches, params["in"])
    width = x.shape[-1]
    x = x + waves(jnp.arange(x.shape[2]), width)
    x = x + waves(jnp.arange(frames), width)[:, None]
    t = jax.nn.silu(linear(waves(1000 * time, WAVES), params["time_in"]))
    t = linear(t, params["time_out"])
    of_layers = linear(jax.nn.silu(t), params["modulation"]).reshape(batch, 9, width)
    condition = {"time": of_layers, **texts}

    def layer(x: Array, weights: Tree) -> tuple[Array, None]:
        return video_layer(x, weights, condition), None

    x, _ = lax.scan(layer, x, params["layers"])
    shift, scale = jnp.split(linear(t, params["last"])[:, None, None], 2, axis=-1)
    x = linear(modulated(x, shift, scale), params["out"])
    x = x.reshape(batch, frames, rows // PATCH, columns // PATCH, PATCH, PATCH, -1)
    return x.swapaxes(3, 4).reshape(latents.shape).astype(jnp.float32)


# -- from latents to frames --------------------------------------------------------


def conv(x: Array, weights: Tree) -> Array:
    """`x` [B, R, C, D] convolved."""
    y = lax.conv_general_dilated(
        x, weights["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return y + weights["b"]


def group_norm(x: Array, weights: Tree, groups: int = 32) -> Array:
    """`x` [B, R, C, D] standardized in groups of features, then a SiLU of it."""
    y = x.astype(jnp.float32).reshape(*x.shape[:3], groups, -1)
    mean, variance = (f(y, axis=(1, 2, 4), keepdims=True) for f in (jnp.mean, jnp.var))
    y = ((y - mean) * lax.rsqrt(variance + 1e-6)).reshape(x.shape)
    return jax.nn.silu(bfloat16(y * weights["scale"] + weights["shift"]))


def residual(x: Array, weights: Tree) -> Array:
    """[B, R, C, D'] of x [B, R, C, D]: two convolutions."""
    y = conv(group_norm(x, weights["n1"]), weights["c1"])
    y = conv(group_norm(y, weights["n2"]), weights["c2"])
    return y + (conv(x, weights["skip"]) if "skip" in weights else x)


def decoded(params: Tree, latents: Array) -> Array:
    """A frame [B, 8 R, 8 C, 3] of bytes for each of latents [B, R, C, 4]."""
    x = conv(bfloat16(latents / 0.18215), params["first"])
    for i, stage in enumerate(params["stages"]):
        if i:
            batch, rows, columns, width = x.shape
            x = jax.image.resize(x, (batch, 2 * rows, 2 * columns, width), "nearest")
            x = conv(x, stage["rise"])
        for weights in stage["blocks"]:
            x = residual(x, weights)
    x = conv(group_norm(x, params["norm"]), params["last"]).astype(jnp.float32)
    return jnp.clip(jnp.round(127.5 * (x + 1)), 0, 255).astype(jnp.uint8)


# -- the sampler -------------------------------------------------------------------


def sample(noise: Array, params: Tree, prompts: Tree) -> tuple[Array, Array]:
    """Latents [B, T, R, C, 4] that noise becomes, and their frames.

    prompts: features [B, W, F] of words, how many count [B]. Each step is taken with
    the words and without, and the difference made larger.
    """
    words, count = prompts["words"], prompts["count"]
    nothing = jnp.broadcast_to(params["nothing"], words.shape)
    words = jnp.concatenate([words, nothing])
    words = jax.nn.gelu(linear(words, params["words_in"]), approximate=True)
    words = linear(words, params["words_out"])
    count = jnp.concatenate([count, jnp.full_like(count, words.shape[1])])
    is_word = jnp.arange(words.shape[1]) < count[:, None]
    bias = jnp.where(is_word, 0.0, -1e9)[:, None, None]
    texts = {"words": words, "bias": bias}
    times = jnp.linspace(1.0, 0.0, STEPS + 1)
    times = SHIFT * times / (1 + (SHIFT - 1) * times)

    def step(i: Array, latents: Array) -> Array:
        both = jnp.concatenate([latents, latents])
        time = jnp.full((len(both),), times[i])
        told, untold = jnp.split(velocity(params["model"], both, time, texts), 2)
        moved = untold + GUIDANCE * (told - untold)
        return latents + (times[i + 1] - times[i]) * moved

    latents = lax.fori_loop(0, STEPS, step, noise)
    frames = lax.map(
        lambda x: decoded(params["decoder"], x), jnp.moveaxis(latents, 1, 0)
    )
    return latents, jnp.moveaxis(frames, 0, 1)


def linear_shapes(before: int, after: int, *stack: int) -> Tree:
    """Parameters of `linear`."""
    return {"w": half(*stack, before, after), "b": half(*stack, after)}


def layer_shapes(layers: int, width: int) -> Tree:
    """Parameters of `video_layer`, so many of them."""
    head = width // HEADS
    attention = {
        "q": half(layers, width, HEADS, head), "kv": half(layers, width, 2, HEADS, head),
        "o": half(layers, HEADS, head, width),
        "q_norm": half(layers, head), "k_norm": half(layers, head),
    }  # fmt: skip
    return {
        "space": attention, "time": attention, "words": attention,
        "up": linear_shapes(width, 4 * width, layers),
        "down": linear_shapes(4 * width, width, layers),
        "table": half(layers, 9, width),
    }  # fmt: skip


def decoder_shapes(*widths: int) -> Tree:
    """Parameters of `decoded`."""

    def kernel(side: int, before: int, after: int) -> Tree:
        return {"w": half(side, side, before, after), "b": half(after)}

    def norm(width: int) -> Tree:
        return {"scale": half(width), "shift": half(width)}

    stages, before = [], widths[0]
    for width in widths:
        rise, blocks = kernel(3, before, before), []
        for _ in range(3):
            block = {
                "n1": norm(before), "c1": kernel(3, before, width),
                "n2": norm(width), "c2": kernel(3, width, width),
            }  # fmt: skip
            more = {} if before == width else {"skip": kernel(1, before, width)}
            blocks.append({**block, **more})
            before = width
        stages.append({"blocks": blocks, **({"rise": rise} if stages else {})})
    return {
        "first": kernel(3, 4, widths[0]), "stages": stages,
        "norm": norm(before), "last": kernel(3, before, 3),
    }  # fmt: skip


def latte(
    batch: int = 64, frames: int = 16, side: int = 32, width: int = 1152
) -> Target:
    """Ma et al., 2024, with words: 28 layers, 30 steps; Stable Diffusion's decoder."""
    layers, words, features, patch = 28, 120, 4096, 4 * PATCH**2
    model = {
        "in": linear_shapes(patch, width), "out": linear_shapes(width, patch),
        "time_in": linear_shapes(WAVES, width), "time_out": linear_shapes(width, width),
        "modulation": linear_shapes(width, 9 * width),
        "last": linear_shapes(width, 2 * width), "layers": layer_shapes(layers, width),
    }  # fmt: skip
    params = {
        "model": model, "decoder": decoder_shapes(512, 512, 256, 128),
        "words_in": linear_shapes(features, width),
        "words_out": linear_shapes(width, width), "nothing": half(words, features),
    }  # fmt: skip
    count = jax.ShapeDtypeStruct((batch,), jnp.int32)
    prompts = {"words": half(batch, words, features), "count": count}
    return sample, (shape(batch, frames, side, side, 4), params, prompts)

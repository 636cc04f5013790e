"""Two models of images that attend: a masked autoencoder and a Perceiver.

Letters: B batch, P patches, S sequence, D features, N heads, H features of a head.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.strangers.step import (
    Target,
    Tree,
    bfloat16,
    shape,
    standardized,
    surprise,
    training,
    whole,
)


def affine(x: Array, weights: Tree) -> Array:
    """`x` [B, S, D] standardized over D, scaled s and shifted b, in its own type."""
    return (standardized(x) * weights["s"] + weights["b"]).astype(x.dtype)


def affine_shapes(width: int) -> Tree:
    """Parameters of `affine`."""
    return {"s": shape(width), "b": shape(width)}


def attention(q: Array, k: Array, v: Array, heads: int) -> Array:
    """[B, S, D] of queries [B, S, D] on all of keys and values [B, S', D]."""
    q, k, v = (x.reshape(*x.shape[:2], heads, -1) for x in (q, k, v))
    scores = jnp.einsum("bqnh,bknh->bnqk", q, k) / math.sqrt(q.shape[-1])
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(v.dtype)
    mixed = jnp.einsum("bnqk,bknh->bqnh", weights, v)
    return mixed.reshape(*mixed.shape[:2], -1)


def block(x: Array, weights: Tree, heads: int) -> Array:
    """[B, S, D] of x [B, S, D]: attention of all on all, an MLP."""
    qkv = affine(x, weights["n1"]) @ weights["qkv"] + weights["qkvb"]
    mixed = attention(*jnp.split(qkv, 3, -1), heads)
    x = x + mixed @ weights["o"] + weights["ob"]
    y = affine(x, weights["n2"]) @ weights["up"] + weights["upb"]
    return x + jax.nn.gelu(y) @ weights["down"] + weights["downb"]


def block_shapes(width: int) -> Tree:
    """Parameters of `block`."""
    return {
        "n1": affine_shapes(width), "n2": affine_shapes(width),
        "qkv": shape(width, 3 * width), "qkvb": shape(3 * width),
        "o": shape(width, width), "ob": shape(width),
        "up": shape(width, 4 * width), "upb": shape(4 * width),
        "down": shape(4 * width, width), "downb": shape(width),
    }  # fmt: skip


# -- a masked autoencoder ----------------------------------------------------------

PATCH = 16
ENCODER_HEADS, DECODER_HEADS = 12, 16


def patches_of(images: Array) -> Array:
    """Patches [B, P, 768] of images [B, height, width, 3]."""
    batch, height, width, channels = images.shape
    rows, columns = height // PATCH, width // PATCH
    x = images.reshape(batch, rows, PATCH, columns, PATCH, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows * columns, -1)


def encoded(params: Tree, patches: Array, kept: Array) -> Array:
    """Features [B, 1 + keep, D] of a class token and the patches kept [B, keep]."""
    x = patches @ params["inp"] + params["inpb"] + params["pos"]
    x = jnp.take_along_axis(x, kept[..., None], axis=1)
    first = jnp.broadcast_to(params["cls"], (x.shape[0], 1, x.shape[2]))
    x = jnp.concatenate([first, x], axis=1)
    for weights in params["layers"]:
        x = block(x, weights, ENCODER_HEADS)
    return affine(x, params["n"])


def decoded(params: Tree, x: Array, restore: Array) -> Array:
    """Patches [B, P, 768] of features [B, 1 + keep, D]; restore [B, P]: their order."""
    x = x @ params["inp"] + params["inpb"]
    batch, seen, width = x.shape
    hidden = restore.shape[1] - (seen - 1)
    hidden = jnp.broadcast_to(params["mask"], (batch, hidden, width))
    y = jnp.concatenate([x[:, 1:], hidden], axis=1)
    y = jnp.take_along_axis(y, restore[..., None], axis=1) + params["pos"]
    y = jnp.concatenate([x[:, :1], y], axis=1)
    for weights in params["layers"]:
        y = block(y, weights, DECODER_HEADS)
    return affine(y, params["n"])[:, 1:] @ params["out"] + params["outb"]


def mae_loss(params: Tree, batch: Tree) -> Array:
    """Mean squared error of hidden patches of images x; noise [B, P] chooses them."""
    params = bfloat16(params)
    patches = patches_of(batch["x"])
    order = jnp.argsort(batch["noise"], axis=1)
    restore = jnp.argsort(order, axis=1)
    kept = order[:, : order.shape[1] // 4]
    features = encoded(params["enc"], bfloat16(patches), kept)
    guess = decoded(params["dec"], features, restore).astype(jnp.float32)
    errors = jnp.mean(jnp.square(guess - standardized(patches)), axis=-1)
    is_hidden = (restore >= kept.shape[1]).astype(jnp.float32)
    return jnp.sum(errors * is_hidden) / jnp.sum(is_hidden)


def mae(
    batch: int = 1024, side: int = 224, width: int = 768, narrow: int = 512
) -> Target:
    """He et al., 2022: 8 layers on a quarter of the patches, 3 narrow on all."""
    patches, pixels = (side // PATCH) ** 2, PATCH * PATCH * 3
    encoder = {
        "inp": shape(pixels, width), "inpb": shape(width), "cls": shape(1, 1, width),
        "pos": shape(patches, width), "layers": [block_shapes(width)] * 8,
        "n": affine_shapes(width),
    }  # fmt: skip
    decoder = {
        "inp": shape(width, narrow), "inpb": shape(narrow), "mask": shape(1, 1, narrow),
        "pos": shape(patches, narrow), "layers": [block_shapes(narrow)] * 3,
        "n": affine_shapes(narrow),
        "out": shape(narrow, pixels), "outb": shape(pixels),
    }  # fmt: skip
    images = {"x": shape(batch, side, side, 3), "noise": shape(batch, patches)}
    return training(mae_loss, {"enc": encoder, "dec": decoder}, images)


# -- a Perceiver: few latents that read many inputs --------------------------------

BANDS = 64
REPEATS = 4
LATENT_HEADS = 8


def fourier_features(side: int) -> Array:
    """Position [side * side, 4 BANDS + 2] of each pixel: waves of both coordinates."""
    line = jnp.linspace(-1.0, 1.0, side)
    grid = jnp.stack(jnp.meshgrid(line, line, indexing="ij"), axis=-1)
    rates = jnp.linspace(1.0, side / 2, BANDS)
    angles = (jnp.pi * grid[..., None] * rates).reshape(side, side, -1)
    waves = [jnp.sin(angles), jnp.cos(angles), grid]
    return jnp.concatenate(waves, axis=-1).reshape(side * side, -1)


def reading(latents: Array, inputs: Array, weights: Tree) -> Array:
    """Latents [B, S, D] after one head of theirs has looked at inputs [B, P, F]."""
    seen = affine(inputs, weights["nx"])
    q = affine(latents, weights["n1"]) @ weights["q"]
    mixed = attention(q, seen @ weights["k"], seen @ weights["v"], 1)
    latents = latents + mixed @ weights["o"]
    y = jax.nn.gelu(affine(latents, weights["n2"]) @ weights["up"])
    return latents + y @ weights["down"]


def perceiver_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of the classes y [B] of images x [B, side, side, 3].

    The same weights, four times: latents read the inputs, then attend to themselves.
    """
    images = batch["x"]
    count, side = images.shape[:2]
    places = fourier_features(side)
    places = jnp.broadcast_to(places, (count, *places.shape))
    pixels = images.reshape(count, side * side, -1)
    inputs = jnp.concatenate([pixels, places], axis=-1)
    x = jnp.broadcast_to(params["latents"], (count, *params["latents"].shape))
    for _ in range(REPEATS):
        x = reading(x, inputs, params["read"])
        for weights in params["layers"]:
            x = block(x, weights, LATENT_HEADS)
    scores = affine(x, params["n"]).mean(axis=1) @ params["out"]
    return surprise(jax.nn.log_softmax(scores), batch["y"])


def perceiver(
    batch: int = 64, side: int = 96, latents: int = 512, width: int = 1024
) -> Target:
    """Jaegle et al., 2021: 9216 pixels to 512 latents; all in float32."""
    features = 4 * BANDS + 2 + 3
    read = {
        "nx": affine_shapes(features), "n1": affine_shapes(width),
        "n2": affine_shapes(width), "q": shape(width, width),
        "k": shape(features, width), "v": shape(features, width),
        "o": shape(width, width), "up": shape(width, width),
        "down": shape(width, width),
    }  # fmt: skip
    params = {
        "latents": shape(latents, width), "read": read,
        "layers": [block_shapes(width)] * 4,
        "n": affine_shapes(width), "out": shape(width, 1000),
    }  # fmt: skip
    images = shape(batch, side, side, 3)
    return training(perceiver_loss, params, {"x": images, "y": whole(batch)})

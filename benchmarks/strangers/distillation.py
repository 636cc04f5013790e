"""A small model of images that is taught by a large one, which stays as it is.

Letters: B batch, P patches, S sequence, D features, N heads, H features of a head,
L layers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.gpt import half
from benchmarks.strangers.step import Target, Tree, shape, standardized, whole

PATCH = 16
HEAD = 64
CLASSES = 1000
TEMPERATURE = 3.0
HARD = 0.1  # share of the labels in the loss
SMOOTHING = 0.1
DEPTH_DROP = 0.1
RATE, MOMENTUM, DECAY = 0.1, 0.9, 1e-4
EMA_DECAY = 0.9998


def dot(x: Array, kernel: Array, bias: Array) -> Array:
    """`x` [..., D] times a kernel, summed and shifted in float32, then rounded."""
    y = jnp.dot(x, kernel, preferred_element_type=jnp.float32)
    return (y + bias.astype(jnp.float32)).astype(x.dtype)


def layer_norm(x: Array, weights: Tree) -> Array:
    """`x` [B, S, D] standardized over D, scaled and shifted, in bfloat16."""
    scale, shift = weights["scale"], weights["shift"]
    return standardized(x).astype(x.dtype) * scale + shift


def branches(x: Array, weights: Tree) -> tuple[Any, Any]:
    """Both that are added to x [B, S, D]: attention's and the MLP's, as functions."""

    def attention(x: Array) -> Array:
        qkv = dot(layer_norm(x, weights["norm1"]), weights["wqkv"], weights["bqkv"])
        qkv = qkv.reshape(*x.shape[:2], 3, -1, HEAD)
        mixed = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])
        return dot(mixed.reshape(x.shape), weights["wo"], weights["bo"])

    def mlp(x: Array) -> Array:
        y = dot(layer_norm(x, weights["norm2"]), weights["wup"], weights["bup"])
        return dot(jax.nn.gelu(y), weights["wdown"], weights["bdown"])

    return attention, mlp


def embedded(params: Tree, images: Array) -> Array:
    """[B, 1 + P, D] of images [B, side, side, 3]: a class token and the patches."""
    x = lax.conv_general_dilated(
        images, params["patch"], (PATCH, PATCH), "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    x = x.reshape(x.shape[0], -1, x.shape[-1])
    first = jnp.tile(params["class"], (x.shape[0], 1, 1))
    return jnp.concatenate([first, x], axis=1) + params["positions"]


def scores_of(params: Tree, x: Array) -> Array:
    """Scores [B, CLASSES] in float32, of the class token of x [B, S, D]."""
    x = layer_norm(x, params["norm"])[:, 0]
    return jnp.dot(x, params["head"], preferred_element_type=jnp.float32)


def teacher_scores(params: Tree, images: Array) -> Array:
    """Scores [B, CLASSES] of images, its layers in a scan."""

    def layer(x: Array, weights: Tree) -> tuple[Array, None]:
        attention, mlp = branches(x, weights)
        x = x + attention(x)
        return x + mlp(x), None

    x, _ = lax.scan(layer, embedded(params, images), params["layers"])
    return scores_of(params, x)


def student_scores(params: Tree, images: Array, key: Array) -> Array:
    """Scores [B, CLASSES] of images, of which some skip a branch of a layer."""
    x = embedded(params, images)
    depth = len(params["layers"])
    for i, weights in enumerate(params["layers"]):
        stays = 1.0 - DEPTH_DROP * i / max(depth - 1, 1)
        for branch in branches(x, weights):
            key, drop_key = jax.random.split(key)
            is_kept = jax.random.bernoulli(drop_key, stays, (x.shape[0], 1, 1))
            x = x + branch(x) * is_kept.astype(x.dtype) / stays
    return scores_of(params, x)


def distil_loss(student: Tree, taught: Array, batch: Tree, key: Array) -> Array:
    """Divergence from what is taught [B, CLASSES], and some of the labels' surprise."""
    scores = student_scores(student, batch["images"], key)
    wanted = jax.nn.log_softmax(taught / TEMPERATURE)
    guess = jax.nn.log_softmax(scores / TEMPERATURE)
    soft = jnp.mean(jnp.sum(jnp.exp(wanted) * (wanted - guess), axis=-1))
    labels = jax.nn.one_hot(batch["labels"], CLASSES)
    labels = labels * (1 - SMOOTHING) + SMOOTHING / CLASSES
    hard = -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(scores), axis=-1))
    return (1 - HARD) * TEMPERATURE**2 * soft + HARD * hard


def distil_step(state: Tree, batch: Tree) -> tuple[Tree, Array]:
    """New state and the loss, of images [B, side, side, 3] of bytes, labels [B]."""
    key = jax.random.fold_in(jax.random.key(5), state["count"])
    flip_key, drop_key = jax.random.split(key)
    images = (batch["images"].astype(jnp.bfloat16) - 127.5) / 58.0
    is_flipped = jax.random.bernoulli(flip_key, 0.5, (images.shape[0], 1, 1, 1))
    images = jnp.where(is_flipped, images[:, :, ::-1], images)
    batch = {**batch, "images": images}
    taught = lax.stop_gradient(teacher_scores(state["teacher"], images))
    loss_fn = jax.value_and_grad(distil_loss)
    loss, gradients = loss_fn(state["student"], taught, batch, drop_key)
    gradients = jax.tree.map(lambda g, p: g + DECAY * p, gradients, state["student"])
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, state["velocity"], gradients)
    student = jax.tree.map(
        lambda p, v, g: p - RATE * (MOMENTUM * v + g),
        state["student"],
        velocity,
        gradients,
    )
    ema = jax.tree.map(
        lambda old, new: old + (1 - EMA_DECAY) * (new.astype(jnp.float32) - old),
        state["ema"],
        student,
    )
    new = {"student": student, "velocity": velocity, "ema": ema}
    return {**state, **new, "count": state["count"] + 1}, loss


def vit_shapes(width: int, side: int, layers: Any) -> Tree:
    """Parameters in bfloat16 of a model around layers."""
    patches = (side // PATCH) ** 2
    return {
        "patch": half(PATCH, PATCH, 3, width), "class": half(1, 1, width),
        "positions": half(1 + patches, width), "layers": layers,
        "norm": {"scale": half(width), "shift": half(width)},
        "head": half(width, CLASSES),
    }  # fmt: skip


def layer_shapes(width: int, *stack: int) -> Tree:
    """Parameters of a layer, or of a stack of them."""
    norm = {"scale": half(*stack, width), "shift": half(*stack, width)}
    return {
        "norm1": norm, "norm2": norm,
        "wqkv": half(*stack, width, 3 * width), "bqkv": half(*stack, 3 * width),
        "wo": half(*stack, width, width), "bo": half(*stack, width),
        "wup": half(*stack, width, 4 * width), "bup": half(*stack, 4 * width),
        "wdown": half(*stack, 4 * width, width), "bdown": half(*stack, width),
    }  # fmt: skip


def distil(
    batch: int = 512, side: int = 224, large: int = 1280, small: int = 768
) -> Target:
    """Touvron et al., 2021: six layers taught by eight, all but the mean in bfloat16."""
    teacher = vit_shapes(large, side, layer_shapes(large, 8))
    student = vit_shapes(small, side, [layer_shapes(small)] * 6)
    ema = jax.tree.map(lambda x: shape(*x.shape), student)
    state = {
        "teacher": teacher, "student": student, "velocity": student, "ema": ema,
        "count": whole(),
    }  # fmt: skip
    images = jax.ShapeDtypeStruct((batch, side, side, 3), jnp.uint8)
    return distil_step, (state, {"images": images, "labels": whole(batch)})

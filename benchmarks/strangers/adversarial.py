"""An autoencoder of images whose codes are words, and a critic of what it makes.

Letters: B batch, C channels, M places of a batch's codes, W words, D features of a word.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.step import Target, Tree, adam, shape, whole

GROUPS = 32
COMMITMENT = 0.25
WORD_DECAY = 0.99
CRITIC_WEIGHT = 0.1
PENALTY = 10.0


def conv(x: Array, weights: Tree, stride: int = 1) -> Array:
    """[B, height, width, C'] of x [B, height, width, C]; k: kernel, b: shift."""
    dims = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(
        x, weights["k"], (stride, stride), "SAME", dimension_numbers=dims
    )
    return y + weights["b"]


@partial(jax.vmap, in_axes=(0, None))
def group_norm(x: Array, weights: Tree) -> Array:
    """`x` [height, width, C] of one image standardized over places and C / 32."""
    y = x.reshape(-1, GROUPS, x.shape[-1] // GROUPS)
    y = y - jnp.mean(y, axis=(0, 2), keepdims=True)
    y = y * lax.rsqrt(jnp.mean(y * y, axis=(0, 2), keepdims=True) + 1e-6)
    return y.reshape(x.shape) * weights["s"] + weights["b"]


def residual(x: Array, weights: Tree) -> Array:
    """[B, height, width, C'] of x [B, height, width, C]: two convolutions and itself."""
    y = conv(jax.nn.swish(group_norm(x, weights["n1"])), weights["c1"])
    y = conv(jax.nn.swish(group_norm(y, weights["n2"])), weights["c2"])
    return y + (conv(x, weights["skip"]) if "skip" in weights else x)


def encode(params: Tree, images: Array) -> Array:
    """Codes [B, side / 8, side / 8, D] of images [B, side, side, 3]."""
    x = conv(images, params["stem"])
    for level in params["levels"]:
        x = residual(x, level["block"])
        if "halve" in level:
            x = conv(x, level["halve"], 2)
    return conv(jax.nn.swish(group_norm(x, params["norm"])), params["out"])


def decode(params: Tree, codes: Array) -> Array:
    """Images [B, side, side, 3] of codes [B, side / 8, side / 8, D]."""
    x = conv(codes, params["stem"])
    for level in params["levels"]:
        x = residual(x, level["block"])
        if "double" in level:
            x = jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
            x = conv(x, level["double"])
    return jnp.tanh(conv(jax.nn.swish(group_norm(x, params["norm"])), params["out"]))


def nearest(words: Array, codes: Array) -> Array:
    """Indices [M] of the words [W, D] that are nearest to codes [M, D]."""
    distances = (
        jnp.sum(codes**2, axis=1, keepdims=True)
        - 2 * codes @ words.T
        + jnp.sum(words**2, axis=1)
    )
    return jnp.argmin(distances, axis=1)


def criticize(params: Tree, images: Array) -> Array:
    """Scores [B, side / 8, side / 8] of patches of images [B, side, side, 3]."""
    x = images
    for i, weights in enumerate(params["convs"]):
        x = jax.nn.leaky_relu(conv(x, weights, 2 if i < 3 else 1), 0.2)
    return conv(x, params["out"])[..., 0]


# -- the step ----------------------------------------------------------------------


def make_loss(params: Tree, critic: Tree, words: Array, images: Array) -> Any:
    """Errors of images, of their codes, and what the critic says; with what is made.

    The gradient of a word goes to the code it stands for; van den Oord et al., 2017.
    """
    codes = encode(params["encoder"], images)
    flat = codes.reshape(-1, codes.shape[-1])
    chosen = nearest(words, flat)
    spoken = words[chosen].reshape(codes.shape)
    commitment = jnp.mean((codes - lax.stop_gradient(spoken)) ** 2)
    straight = codes + lax.stop_gradient(spoken - codes)
    made = decode(params["decoder"], straight)
    error = jnp.mean(jnp.abs(made - images)) + COMMITMENT * commitment
    loss = error - CRITIC_WEIGHT * jnp.mean(criticize(critic, made))
    return loss, (made, flat, chosen)


def critic_loss(critic: Tree, real: Array, made: Array) -> Array:
    """The hinge of scores of both, and a penalty on slopes at what is real.

    Mescheder et al., 2018: the squared gradient of scores by pixels.
    """
    hinge = jnp.mean(jax.nn.relu(1.0 - criticize(critic, real)))
    hinge = hinge + jnp.mean(jax.nn.relu(1.0 + criticize(critic, made)))
    slopes = jax.grad(lambda x: jnp.sum(criticize(critic, x)))(real)
    return hinge + 0.5 * PENALTY * jnp.mean(jnp.sum(slopes**2, axis=(1, 2, 3)))


def moved_words(book: Tree, codes: Array, chosen: Array) -> Tree:
    """The book after codes [M, D] have chosen words: means of those that chose them.

    uses [W], sums [W, D]: fading counts and sums.
    """
    is_chosen = jax.nn.one_hot(chosen, book["uses"].shape[0])
    uses = WORD_DECAY * book["uses"] + (1 - WORD_DECAY) * is_chosen.sum(0)
    sums = WORD_DECAY * book["sums"] + (1 - WORD_DECAY) * is_chosen.T @ codes
    total = jnp.sum(uses)
    smooth = (uses + 1e-5) / (total + 1e-5 * uses.shape[0]) * total
    return {"uses": uses, "sums": sums, "words": sums / smooth[:, None]}


def vqgan_step(state: Tree, images: Array) -> tuple[Tree, Tree]:
    """New state after a step of the maker, of its words and of the critic."""
    words = state["book"]["words"]
    loss_fn = jax.value_and_grad(make_loss, has_aux=True)
    (loss, aux), gradients = loss_fn(state["maker"], state["critic"], words, images)
    made, codes, chosen = jax.tree.map(lax.stop_gradient, aux)
    maker, maker_adam = adam(state["maker"], gradients, state["maker_adam"])
    critical, gradients = jax.value_and_grad(critic_loss)(state["critic"], images, made)
    critic, critic_adam = adam(state["critic"], gradients, state["critic_adam"])
    state = {
        "maker": maker, "maker_adam": maker_adam,
        "critic": critic, "critic_adam": critic_adam,
        "book": moved_words(state["book"], codes, chosen),
    }  # fmt: skip
    return state, {"maker": loss, "critic": critical}


# -- shapes ------------------------------------------------------------------------


def conv_shapes(before: int, after: int, side: int = 3) -> Tree:
    """Parameters of `conv`."""
    return {"k": shape(side, side, before, after), "b": shape(after)}


def residual_shapes(before: int, after: int) -> Tree:
    """Parameters of `residual`."""
    weights = {
        "n1": {"s": shape(before), "b": shape(before)},
        "c1": conv_shapes(before, after),
        "n2": {"s": shape(after), "b": shape(after)}, "c2": conv_shapes(after, after),
    }  # fmt: skip
    skip = {"skip": conv_shapes(before, after, 1)} if before != after else {}
    return {**weights, **skip}


def coder_shapes(widths: tuple[int, ...], inputs: int, outputs: int, way: str) -> Tree:
    """Parameters of an encoder ("halve") or a decoder ("double")."""
    levels, before = [], widths[0]
    for i, width in enumerate(widths):
        levels.append({"block": residual_shapes(before, width)})
        if i < len(widths) - 1:
            levels[-1][way] = conv_shapes(width, width)
        before = width
    return {
        "stem": conv_shapes(inputs, widths[0]), "levels": levels,
        "norm": {"s": shape(before), "b": shape(before)},
        "out": conv_shapes(before, outputs),
    }  # fmt: skip


def vqgan(
    batch: int = 128, side: int = 128, words: int = 8192, features: int = 256
) -> Target:
    """Esser et al., 2021, a block a level and without perceptual loss, in float32."""
    widths = (128, 128, 256, 512)
    maker = {
        "encoder": coder_shapes(widths, 3, features, "halve"),
        "decoder": coder_shapes(widths[::-1], features, 3, "double"),
    }
    critic = {
        "convs": [
            conv_shapes(a, b, 4)
            for a, b in ((3, 64), (64, 128), (128, 256), (256, 512))
        ],
        "out": conv_shapes(512, 1, 4),
    }
    word = shape(words, features)
    state = {
        "maker": maker, "maker_adam": (maker, maker, whole()),
        "critic": critic, "critic_adam": (critic, critic, whole()),
        "book": {"uses": shape(words), "sums": word, "words": word},
    }  # fmt: skip
    return vqgan_step, (state, shape(batch, side, side, 3))

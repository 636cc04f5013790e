"""Strangers that do not attend: recurrent, convolutional, sparse, of graphs.

Letters: B batch, S sequence, D features.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

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

IMAGES = ("NHWC", "HWIO", "NHWC")
conv = partial(lax.conv_general_dilated, dimension_numbers=IMAGES)

# -- a recurrent language model: a scan over time ----------------------------------


def gru_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of the tokens y [B, S] after those of x [B, S].

    e, o: embedding and output; w, u: what gates hear from below, and from the state.
    """
    x = params["e"][batch["x"]]
    below = jnp.swapaxes(x @ params["w"] + params["b"], 0, 1)

    def cell(state: Array, below: Array) -> tuple[Array, Array]:
        reset, keep, new = jnp.split(below, 3, -1)
        reset_state, keep_state, new_state = jnp.split(state @ params["u"], 3, -1)
        reset = jax.nn.sigmoid(reset + reset_state)
        keep = jax.nn.sigmoid(keep + keep_state)
        new = jnp.tanh(new + reset * new_state)
        state = (1 - keep) * new + keep * state
        return state, state

    start = jnp.zeros((x.shape[0], x.shape[2]))
    _, states = lax.scan(cell, start, below)
    log_shares = jax.nn.log_softmax(states @ params["o"])
    return surprise(log_shares, jnp.swapaxes(batch["y"], 0, 1))


def gru(batch: int = 512, length: int = 128, width: int = 2048) -> Target:
    """Cho et al., 2014; all in float32, the steps of time kept for the way back."""
    vocab = 16_384
    params = {
        "e": shape(vocab, width), "o": shape(width, vocab), "b": shape(3 * width),
        "w": shape(width, 3 * width), "u": shape(width, 3 * width),
    }  # fmt: skip
    tokens = whole(batch, length)
    return training(gru_loss, params, {"x": tokens, "y": tokens})


# -- a convolutional network of images ---------------------------------------------


def channel_norm(x: Array, scale: Any = 1.0, shift: Any = 0.0) -> Array:
    """`x` [..., D], standardized, scaled and shifted [D]."""
    return bfloat16(standardized(x) * scale + shift)


def convnext_block(x: Array, weights: Tree) -> Array:
    """[B, height, width, D] of the like; dw: each channel alone, ls: a last scale."""
    y = conv(x, weights["dw"], (1, 1), "SAME", feature_group_count=x.shape[-1])
    y = channel_norm(y, weights["s"], weights["b"])
    return x + weights["ls"] * (jax.nn.gelu(y @ weights["up"]) @ weights["down"])


def convnext_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of the classes y [B] of images x [B, 224, 224, 3]."""
    params = bfloat16(params)
    x = channel_norm(conv(bfloat16(batch["x"]), params["stem"], (4, 4), "VALID"))
    for stage in params["stages"]:
        if "ds" in stage:
            x = conv(channel_norm(x, stage["n"]), stage["ds"], (2, 2), "VALID")
        for weights in stage["blocks"]:
            x = convnext_block(x, weights)
    scores = (channel_norm(x.mean((1, 2))) @ params["head"]).astype(jnp.float32)
    return surprise(jax.nn.log_softmax(scores), batch["y"])


def convnext_stage(width: int, blocks: int, before: int) -> Tree:
    """Parameters of a stage; ds, n: halving and its norm, where one stands before."""
    block = {
        "dw": shape(7, 7, 1, width), "s": shape(width), "b": shape(width),
        "up": shape(width, 4 * width), "down": shape(4 * width, width),
        "ls": shape(width),
    }  # fmt: skip
    halving = {"ds": shape(2, 2, before, width), "n": shape(before)} if before else {}
    return {"blocks": [block] * blocks, **halving}


def convnext(batch: int = 512) -> Target:
    """Liu et al., 2022, the tiny one, in bfloat16 from float32 parameters."""
    stages = ((96, 3, 0), (192, 3, 96), (384, 9, 192), (768, 3, 384))
    params = {
        "stem": shape(4, 4, 3, 96),
        "stages": [convnext_stage(*stage) for stage in stages],
        "head": shape(768, 1000),
    }
    images = shape(batch, 224, 224, 3)
    return training(convnext_loss, params, {"x": images, "y": whole(batch)})


# -- a recommender: large tables, small products -----------------------------------


def mlp(layers: list[Tree], x: Array) -> Array:
    """All layers on x [B, D], with a ReLU after each but the last."""
    for i, layer in enumerate(layers):
        x = x @ layer["w"] + layer["b"]
        if i < len(layers) - 1:
            x = jax.nn.relu(x)
    return x


def mlp_shapes(*widths: int) -> list[Tree]:
    """Parameters of layers from each width to the next."""
    return [{"w": shape(a, b), "b": shape(b)} for a, b in pairwise(widths)]


def dlrm_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of clicks y [B], of dense [B, 13] and ids [B, tables].

    t: the tables; bot, top: the MLPs below and above the products.
    """
    dense = jax.nn.relu(mlp(params["bot"], batch["dense"]))
    look_up = jax.vmap(lambda table, row: table[row], (0, 1), 1)
    looked_up = look_up(params["t"], batch["ids"])
    features = jnp.concatenate([dense[:, None], looked_up], 1)
    products = jnp.einsum("bid,bjd->bij", features, features)
    i, j = jnp.tril_indices(features.shape[1], -1)
    joined = jnp.concatenate([dense, products[:, i, j]], 1)
    score = mlp(params["top"], joined)[:, 0]
    losses = jnp.maximum(score, 0) - score * batch["y"]
    return jnp.mean(losses + jnp.log1p(jnp.exp(-jnp.abs(score))))


def dlrm(batch: int = 65_536, tables: int = 26, width: int = 64) -> Target:
    """Naumov et al., 2019: products of all pairs of features."""
    pairs = (tables + 1) * tables // 2
    params = {
        "t": shape(tables, 200_000, width),
        "bot": mlp_shapes(13, 512, 256, width),
        "top": mlp_shapes(width + pairs, 1024, 1024, 512, 256, 1),
    }
    clicks = {"dense": shape(batch, 13), "ids": whole(batch, tables), "y": shape(batch)}
    return training(dlrm_loss, params, clicks)


# -- an autoencoder of images ------------------------------------------------------


def vae_loss(params: Tree, batch: Tree) -> Array:
    """Squared error and divergence of images x [B, 128, 128, 3], noise eps [B, 256].

    e, d: kernels of encoder and decoder; mu, lv: to the mean and log-variance of the
    code; z: from the code.
    """
    x = images = batch["x"]
    for kernel in params["e"]:
        x = jax.nn.leaky_relu(conv(x, kernel, (2, 2), "SAME"))
    x = x.reshape(len(x), -1)
    mean, log_variance = x @ params["mu"], x @ params["lv"]
    code = mean + jnp.exp(0.5 * log_variance) * batch["eps"]
    x = (code @ params["z"]).reshape(len(code), 8, 8, -1)
    for i, kernel in enumerate(params["d"]):
        x = lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=IMAGES)
        x = jax.nn.leaky_relu(x) if i < 3 else jax.nn.sigmoid(x)
    error = jnp.mean(jnp.sum((x - images) ** 2, (1, 2, 3)))
    spread = 1 + log_variance - mean**2 - jnp.exp(log_variance)
    return error - 0.5 * jnp.mean(jnp.sum(spread, -1))


def vae(batch: int = 1024, width: int = 64, code: int = 256) -> Target:
    """Kingma and Welling, 2014: four strided convolutions each way."""
    widths = (3, width, 2 * width, 4 * width, 8 * width)
    inner = 8 * 8 * widths[-1]
    params = {
        "e": [shape(4, 4, *pair) for pair in pairwise(widths)],
        "mu": shape(inner, code), "lv": shape(inner, code), "z": shape(code, inner),
        "d": [shape(4, 4, *pair) for pair in pairwise(widths[::-1])],
    }  # fmt: skip
    images = shape(batch, 128, 128, 3)
    return training(vae_loss, params, {"x": images, "eps": shape(batch, code)})


# -- a network of a graph: sums over edges -----------------------------------------


def sage_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of the classes y of nodes x, edges from src to dst.

    l: layers; s, n: what a node hears from itself and from its neighbours; o: output.
    """
    x, source, target = batch["x"], batch["src"], batch["dst"]
    for weights in params["l"]:
        heard = jax.ops.segment_sum(x[source], target, len(x))
        degree = jax.ops.segment_sum(jnp.ones(len(target)), target, len(x))
        own = x @ weights["s"]
        others = (heard / jnp.maximum(degree, 1)[:, None]) @ weights["n"]
        x = jax.nn.relu(own + others + weights["b"])
    return surprise(jax.nn.log_softmax(x @ params["o"]), batch["y"])


def sage(nodes: int = 200_000, edges: int = 2_000_000, width: int = 128) -> Target:
    """Hamilton et al., 2017, on a whole graph at once."""
    layer = {"s": shape(width, width), "n": shape(width, width), "b": shape(width)}
    params = {"l": [layer] * 3, "o": shape(width, 40)}
    graph = {
        "x": shape(nodes, width), "y": whole(nodes),
        "src": whole(edges), "dst": whole(edges),
    }  # fmt: skip
    return training(sage_loss, params, graph)


# -- two towers: scores of all pairs of a batch ------------------------------------


def run_tower(params: Tree, x: Array) -> Array:
    """Features [B, 512] of length 1, of x [B, D].

    i, o: the way in and out; l: layers; u, d: an MLP's way up and down.
    """
    x = x @ params["i"]
    for weights in params["l"]:
        y = x - x.mean(-1, keepdims=True)
        y = y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
        x = x + jax.nn.gelu(y @ weights["u"]) @ weights["d"]
    x = x @ params["o"]
    return x * lax.rsqrt(jnp.sum(x * x, -1, keepdims=True))


def clip_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of the pairs a, b [B, D], each among a batch of the other.

    t: the logarithm of what scores are multiplied by.
    """
    a, b = run_tower(params["a"], batch["a"]), run_tower(params["b"], batch["b"])
    scores = a @ b.T * jnp.exp(params["t"])
    columns = jnp.diag(jax.nn.log_softmax(scores, 0))
    rows = jnp.diag(jax.nn.log_softmax(scores, 1))
    return -jnp.mean(columns + rows) / 2


def tower_shapes(features: int, width: int = 1024, inner: int = 4096) -> Tree:
    """Parameters of a tower of four layers on so many features."""
    layer = {"u": shape(width, inner), "d": shape(inner, width)}
    return {"i": shape(features, width), "l": [layer] * 4, "o": shape(width, 512)}


def clip(batch: int = 16_384) -> Target:
    """Radford et al., 2021, without the encoders: MLPs on features of two kinds."""
    params = {"a": tower_shapes(768), "b": tower_shapes(2048), "t": shape()}
    pairs = {"a": shape(batch, 768), "b": shape(batch, 2048)}
    return training(clip_loss, params, pairs)

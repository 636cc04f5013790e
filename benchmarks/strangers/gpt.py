"""Two GPTs: one trained by Muon, one whose adapters alone are trained.

Letters: B batch, S sequence, D features, N heads, H features of a head, V vocab.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.strangers.language import (
    causal_attention,
    cross_entropy,
    rms_norm,
    rope,
)
from benchmarks.strangers.step import (
    Target,
    Tree,
    adam,
    bfloat16,
    shape,
    standardized,
    surprise,
    whole,
)

# -- Muon: each matrix of gradients made orthogonal --------------------------------

HEAD = 128
MOMENTUM = 0.95
MATRIX_RATE = 0.02
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan, 2024
CAP = 15.0


def unit(x: Array) -> Array:
    """`x` [..., D] over its root mean square, with no scale to learn."""
    return rms_norm(x, jnp.ones((), jnp.float32))


def muon_layer(x: Array, weights: Tree) -> Array:
    """[B, S, D] of x [B, S, D]: normed queries and keys, a squared ReLU."""
    split = (*x.shape[:2], -1, HEAD)
    positions = jnp.arange(x.shape[1])
    y = unit(x)
    q = rope(unit((y @ weights["q"]).reshape(split)), positions)
    k = rope(unit((y @ weights["k"]).reshape(split)), positions)
    v = (y @ weights["v"]).reshape(split)
    x = x + causal_attention(q, k, v).reshape(x.shape) @ weights["o"]
    return x + jnp.square(jax.nn.relu(unit(x) @ weights["up"])) @ weights["down"]


def muon_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of the tokens y [B, S] after x [B, S], of capped scores."""
    x = unit(bfloat16(params["ends"]["emb"][batch["x"]]))
    for weights in params["layers"]:
        x = muon_layer(x, bfloat16(weights))
    scores = (unit(x) @ bfloat16(params["ends"]["out"])).astype(jnp.float32)
    log_shares = jax.nn.log_softmax(CAP * jnp.tanh(scores / CAP))
    return surprise(log_shares, batch["y"])


def orthogonal(matrix: Array) -> Array:
    """A matrix of the like whose singular values are near 1: Newton-Schulz."""
    a, b, c = QUINTIC
    x = matrix.astype(jnp.bfloat16)
    is_tall = x.shape[0] > x.shape[1]
    if is_tall:
        x = x.T
    x = x / (jnp.linalg.norm(x) + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return (x.T if is_tall else x).astype(jnp.float32)


def muon_step(state: Any, batch: Tree) -> Any:
    """New state and the loss: Muon for the layers, Adam for embedding and output."""
    params, momentum, ends_state = state
    loss, gradients = jax.value_and_grad(muon_loss)(params, batch)
    ends, ends_state = adam(params["ends"], gradients["ends"], ends_state)
    momentum = jax.tree.map(
        lambda old, g: MOMENTUM * old + g, momentum, gradients["layers"]
    )

    def updated(param: Array, gradient: Array, momentum: Array) -> Array:
        rate = MATRIX_RATE * max(1, param.shape[0] / param.shape[1]) ** 0.5
        return param - rate * orthogonal(gradient + MOMENTUM * momentum)

    layers = jax.tree.map(updated, params["layers"], gradients["layers"], momentum)
    return ({"ends": ends, "layers": layers}, momentum, ends_state), loss


def muon(
    batch: int = 48, length: int = 1024, width: int = 768, vocab: int = 50_304
) -> Target:
    """Jordan et al., 2024: eight layers; the output is not tied to the embedding."""
    square = shape(width, width)
    layer = {
        "q": square, "k": square, "v": square, "o": square,
        "up": shape(width, 4 * width), "down": shape(4 * width, width),
    }  # fmt: skip
    layers = [layer] * 8
    ends = {"emb": shape(vocab, width), "out": shape(width, vocab)}
    state = {"ends": ends, "layers": layers}, layers, (ends, ends, whole())
    tokens = whole(batch, length)
    return muon_step, (state, {"x": tokens, "y": tokens})


# -- LoRA: a frozen base in bfloat16 -----------------------------------------------

RANK = 16
STRENGTH = 2.0


def half(*dims: int) -> jax.ShapeDtypeStruct:
    """An array of floats of two bytes."""
    return jax.ShapeDtypeStruct(dims, jnp.bfloat16)


def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    """`x` [B, S, D] standardized over D, scaled and shifted [D], in bfloat16."""
    return bfloat16(standardized(x) * scale + shift)


def adapted(x: Array, weight: Array, adapter: Tree) -> Array:
    """[B, S, D'] of x [B, S, D]: a frozen product and one by way of a low rank."""
    low = (x @ bfloat16(adapter["a"])) @ bfloat16(adapter["b"])
    return x @ weight + STRENGTH * low


@jax.checkpoint
def lora_layer(x: Array, base: Tree, adapters: Tree) -> Array:
    """[B, S, D] of x [B, S, D]; qkv and o are adapted, the MLP is as it was."""
    split = (*x.shape[:2], -1, HEAD)
    y = layer_norm(x, base["s1"], base["b1"])
    qkv = adapted(y, base["qkv"], adapters["qkv"])
    q, k, v = (part.reshape(split) for part in jnp.split(qkv, 3, -1))
    mixed = causal_attention(q, k, v).reshape(x.shape)
    x = x + adapted(mixed, base["o"], adapters["o"])
    y = layer_norm(x, base["s2"], base["b2"])
    y = jax.nn.gelu(y @ base["up"] + base["upb"])
    return x + y @ base["down"] + base["downb"]


def lora_loss(adapters: Any, base: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of tokens y [B, S] after x [B, S], where mask [B, S] is 1."""
    x = base["emb"][batch["x"]] + base["pos"][: batch["x"].shape[1]]
    for weights, adapter in zip(base["layers"], adapters, strict=True):
        x = lora_layer(x, weights, adapter)
    scores = layer_norm(x, base["s"], base["b"]) @ base["emb"].T
    losses = cross_entropy(scores, batch["y"]) * batch["mask"]
    return jnp.sum(losses) / jnp.maximum(jnp.sum(batch["mask"]), 1)


def lora_step(state: Tree, batch: Tree) -> tuple[Tree, Array]:
    """New state and the loss; the base is handed on as it came."""
    loss_fn = jax.value_and_grad(lora_loss)
    loss, gradients = loss_fn(state["adapters"], state["base"], batch)
    adapters, optimizer = adam(state["adapters"], gradients, state["optimizer"])
    return {**state, "adapters": adapters, "optimizer": optimizer}, loss


def lora(
    batch: int = 32, length: int = 1024, width: int = 2048, vocab: int = 32_000
) -> Target:
    """Hu et al., 2022: rank 16 beside each product of attention of 12 layers."""
    layer = {
        "s1": half(width), "b1": half(width), "s2": half(width), "b2": half(width),
        "qkv": half(width, 3 * width), "o": half(width, width),
        "up": half(width, 4 * width), "upb": half(4 * width),
        "down": half(4 * width, width), "downb": half(width),
    }  # fmt: skip
    base = {
        "emb": half(vocab, width), "pos": half(length, width),
        "layers": [layer] * 12, "s": half(width), "b": half(width),
    }  # fmt: skip
    adapter = {
        "qkv": {"a": shape(width, RANK), "b": shape(RANK, 3 * width)},
        "o": {"a": shape(width, RANK), "b": shape(RANK, width)},
    }
    adapters = [adapter] * 12
    optimizer = adapters, adapters, whole()
    state = {"base": base, "adapters": adapters, "optimizer": optimizer}
    tokens, mask = whole(batch, length), shape(batch, length)
    return lora_step, (state, {"x": tokens, "y": tokens, "mask": mask})

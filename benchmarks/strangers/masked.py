"""A model of texts that guesses hidden words, trained by LAMB.

Letters: B batch, S sequence, M hidden places of a text, D features, N heads,
H features of a head, V vocab.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.step import Target, Tree, bfloat16, shape, whole

HEADS = 16
DROPOUT = 0.1
RATE, DECAY = 4e-3, 0.01
BETA1, BETA2 = 0.9, 0.999


def dropout(key: Array, x: Array) -> Array:
    """`x` with a tenth of it left out."""
    keep = jax.random.bernoulli(key, p=1.0 - DROPOUT, shape=x.shape)
    return x * keep.astype(x.dtype) / (1.0 - DROPOUT)


def layer_norm(x: Array, weights: Tree) -> Array:
    """`x` [..., D] with mean 0 and variance 1 over D, scaled and shifted."""
    y = x.astype(jnp.float32)
    mean = jnp.mean(y, axis=-1, keepdims=True)
    variance = jnp.mean(y * y, axis=-1, keepdims=True) - mean * mean
    y = (y - mean) * lax.rsqrt(variance + 1e-12)
    return (y * weights["gamma"] + weights["beta"]).astype(x.dtype)


def linear(x: Array, weights: Tree) -> Array:
    """`x` [..., D] through a kernel and a bias, in the type of x."""
    return x @ weights["w"].astype(x.dtype) + weights["b"].astype(x.dtype)


def self_attention(x: Array, weights: Tree, mask: Array, key: Array) -> Array:
    """[B, S, D] of x [B, S, D]; mask [B, 1, 1, S] is added to scores."""
    batch, length, width = x.shape
    head = width // HEADS

    def heads(name: str) -> Array:
        y = linear(x, weights[name]).reshape(batch, length, HEADS, head)
        return y.transpose(0, 2, 1, 3)

    q, k, v = heads("query"), heads("key"), heads("value")
    scores = jnp.matmul(q, k.transpose(0, 1, 3, 2)) * head**-0.5 + mask
    shares = dropout(key, jax.nn.softmax(scores, axis=-1))
    mixed = jnp.matmul(shares, v).transpose(0, 2, 1, 3).reshape(batch, length, width)
    return linear(mixed, weights["output"])


def bert_layer(x: Array, weights: Tree, mask: Array, key: Array) -> Array:
    """[B, S, D] of x [B, S, D]; the norms come after what is added."""
    keys = jax.random.split(key, 3)
    y = self_attention(x, weights["attention"], mask, keys[0])
    x = layer_norm(x + dropout(keys[1], y), weights["norm1"])
    y = jax.nn.gelu(linear(x, weights["up"]), approximate=False)
    y = linear(y, weights["down"])
    return layer_norm(x + dropout(keys[2], y), weights["norm2"])


def bert_loss(params: Tree, batch: Tree, key: Array) -> Array:
    """Mean cross-entropy of hidden words, and of whether the second part follows.

    tokens, parts [B, S]; lengths, follows [B]; places, words, weights [B, M].
    """
    tokens = batch["tokens"]
    length = tokens.shape[1]
    keys = jax.random.split(key, len(params["layers"]) + 1)
    x = params["words"][tokens] + params["places"][:length]
    x = x + params["parts"][batch["parts"]]
    x = bfloat16(dropout(keys[0], layer_norm(x, params["norm"])))
    is_text = jnp.arange(length)[None, :] < batch["lengths"][:, None]
    mask = bfloat16(jnp.where(is_text, 0.0, -1e9))[:, None, None, :]
    policy = jax.checkpoint_policies.dots_saveable
    layer = jax.checkpoint(bert_layer, policy=policy)
    for weights, layer_key in zip(params["layers"], keys[1:], strict=True):
        x = layer(x, weights, mask, layer_key)
    hidden = jax.vmap(lambda row, places: row[places])(x, batch["places"])
    hidden = jax.nn.gelu(linear(hidden, params["transform"]), approximate=False)
    hidden = layer_norm(hidden, params["transform_norm"])
    scores = jnp.einsum(
        "bmd,vd->bmv", hidden, bfloat16(params["words"]),
        preferred_element_type=jnp.float32,
    )  # fmt: skip
    log_chances = jax.nn.log_softmax(scores + params["word_bias"])
    chosen = jnp.take_along_axis(log_chances, batch["words"][..., None], -1)[..., 0]
    weights = batch["weights"]
    loss = -jnp.sum(chosen * weights) / (jnp.sum(weights) + 1e-5)
    first = jnp.tanh(linear(x[:, 0], params["pooler"]))
    scores = linear(first, params["next"]).astype(jnp.float32)
    is_next = jax.nn.one_hot(batch["follows"], 2)
    return loss - jnp.mean(jnp.sum(is_next * jax.nn.log_softmax(scores), axis=-1))


def lamb(params: Any, gradients: Any, state: Tree) -> tuple[Any, Tree]:
    """New parameters and state; You et al., 2020: each array by its own norm."""
    norm = jnp.sqrt(
        sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradients))  # of all together
    )
    gradients = jax.tree.map(lambda g: g / jnp.maximum(norm, 1.0), gradients)
    step = state["step"] + 1
    m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state["m"], gradients)
    v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g**2, state["v"], gradients)
    m_scale = 1 / (1 - BETA1 ** step.astype(jnp.float32))
    v_scale = 1 / (1 - BETA2 ** step.astype(jnp.float32))

    def update(p: Array, m: Array, v: Array) -> Array:
        u = m * m_scale / (jnp.sqrt(v * v_scale) + 1e-6)
        if p.ndim > 1:
            u = u + DECAY * p
        p_norm, u_norm = jnp.linalg.norm(p.ravel()), jnp.linalg.norm(u.ravel())
        trust = jnp.where((p_norm > 0) & (u_norm > 0), p_norm / u_norm, 1.0)
        return p - RATE * trust * u

    return jax.tree.map(update, params, m, v), {"m": m, "v": v, "step": step}


def bert_step(state: Tree, batch: Tree) -> tuple[Tree, Array]:
    """New state and the loss; the key of dropout is split off the state's."""
    key, dropout_key = jax.random.split(state["key"])
    loss_fn = jax.value_and_grad(bert_loss)
    loss, gradients = loss_fn(state["params"], batch, dropout_key)
    params, optimizer = lamb(state["params"], gradients, state["lamb"])
    return {"params": params, "lamb": optimizer, "key": key}, loss


def bert(
    batch: int = 256, length: int = 512, hidden: int = 80, width: int = 1024
) -> Target:
    """Devlin et al., 2019, the large one's width, four layers; dots are kept."""
    vocab = 30_528

    def linear_shapes(before: int, after: int) -> Tree:
        return {"w": shape(before, after), "b": shape(after)}

    square = linear_shapes(width, width)
    norm = {"gamma": shape(width), "beta": shape(width)}
    layer = {
        "attention": {"query": square, "key": square, "value": square, "output": square},
        "norm1": norm, "norm2": norm,
        "up": linear_shapes(width, 4 * width), "down": linear_shapes(4 * width, width),
    }  # fmt: skip
    params = {
        "words": shape(vocab, width), "places": shape(512, width),
        "parts": shape(2, width), "norm": norm, "layers": [layer] * 4,
        "transform": square, "transform_norm": norm, "word_bias": shape(vocab),
        "pooler": square, "next": linear_shapes(width, 2),
    }  # fmt: skip
    key = jax.eval_shape(lambda: jax.random.PRNGKey(0))
    optimizer = {"m": params, "v": params, "step": whole()}
    texts = {
        "tokens": whole(batch, length), "parts": whole(batch, length),
        "lengths": whole(batch), "follows": whole(batch),
        "places": whole(batch, hidden), "words": whole(batch, hidden),
        "weights": shape(batch, hidden),
    }  # fmt: skip
    return bert_step, ({"params": params, "lamb": optimizer, "key": key}, texts)

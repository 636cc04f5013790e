"""A mixture of experts to which tokens are moved by index, not by products.

Letters: B batch, S sequence, D features, N heads, H features of a head, E experts,
K choices of a token, C capacity of an expert, V vocab, L layers.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name

from benchmarks.strangers.gpt import half
from benchmarks.strangers.language import (
    causal_attention,
    clipped,
    cross_entropy,
    rms_norm,
    rope,
)
from benchmarks.strangers.step import Target, Tree, bfloat16, shape, whole

HEAD = 128
CHOICES = 2
CAPACITY = 1.25
BALANCE, ROUTER_Z, Z_LOSS = 1e-2, 1e-3, 1e-4
RATE, DECAY = 1e-4, 0.1
SLOW, FAST = 0.99, 0.9  # Chen et al., 2023

# -- moving tokens -----------------------------------------------------------------


def places(chosen: Array, experts: int, capacity: int) -> tuple[Array, Array]:
    """Where [S K] choices go, sorted by expert, and which choice each of these is.

    chosen [S, K]: experts. A place is E C for a choice that finds its expert full.
    """
    chosen = chosen.reshape(-1)
    order = jnp.argsort(chosen, stable=True)
    expert = chosen[order]
    count = jnp.zeros(experts, jnp.int32).at[chosen].add(1)
    begin = jnp.cumsum(count) - count
    rank = jnp.arange(expert.shape[0]) - begin[expert]
    place = jnp.where(rank < capacity, expert * capacity + rank, experts * capacity)
    return place, order


def send(x: Array, place: Array, order: Array, num_places: int) -> Array:
    """Tokens x [S, D] of one sequence in their places [E C, D]."""
    empty = jnp.zeros((num_places, x.shape[1]), x.dtype)
    return empty.at[place].set(x[order // CHOICES], mode="drop")


def fetch(outputs: Array, place: Array, order: Array, gates: Array) -> Array:
    """Sum [S, D] of what experts say [E C, D] of each token, by gates [S, K]."""
    said = outputs.at[place].get(mode="fill", fill_value=0)
    said = said * gates.reshape(-1)[order][:, None].astype(said.dtype)
    empty = jnp.zeros((gates.shape[0], said.shape[1]), said.dtype)
    return empty.at[order // CHOICES].add(said)


def experts_of(x: Array, weights: Tree) -> tuple[Array, Array]:
    """[B, S, D] of x [B, S, D], and what the router is to pay for it."""
    batch, length, width = x.shape
    experts = weights["router"].shape[-1]
    capacity = math.ceil(CAPACITY * CHOICES * length / experts)
    scores = jnp.dot(x, weights["router"], preferred_element_type=jnp.float32)
    chances = jax.nn.softmax(scores, axis=-1)
    gates, chosen = lax.top_k(chances, CHOICES)
    gates = gates / jnp.sum(gates, axis=-1, keepdims=True)
    place, order = jax.vmap(partial(places, experts=experts, capacity=capacity))(chosen)
    sent = jax.vmap(partial(send, num_places=experts * capacity))(x, place, order)
    inputs = sent.reshape(batch, experts, capacity, width)
    gate = jnp.einsum("becd,edf->becf", inputs, weights["gate"])
    up = jnp.einsum("becd,edf->becf", inputs, weights["up"])
    inner = checkpoint_name(jax.nn.silu(gate) * up, "inner")
    outputs = jnp.einsum("becf,efd->becd", inner, weights["down"])
    y = jax.vmap(fetch)(outputs.reshape(batch, -1, width), place, order, gates)
    load = jnp.zeros(experts).at[chosen.reshape(-1)].add(1.0) / chosen.size
    balance = experts * jnp.sum(load * jnp.mean(chances, axis=(0, 1)))
    z = jnp.mean(jnp.square(jax.nn.logsumexp(scores, axis=-1)))
    return y, BALANCE * balance + ROUTER_Z * z


# -- the model ---------------------------------------------------------------------


def experts_layer(x: Array, weights: Tree) -> tuple[Array, Array]:
    """[B, S, D] of x [B, S, D], and what its router pays."""
    split = (*x.shape[:2], -1, HEAD)
    positions = jnp.arange(x.shape[1])
    y = rms_norm(x, weights["norm1"])
    q, k, v = (part.reshape(split) for part in jnp.split(y @ weights["qkv"], 3, -1))
    mixed = causal_attention(rope(q, positions), rope(k, positions), v)
    mixed = checkpoint_name(mixed.reshape(x.shape), "mixed")
    x = x + mixed @ weights["o"]
    y, price = experts_of(rms_norm(x, weights["norm2"]), weights)
    return x + y, price


def experts_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of tokens y [B, S] after x [B, S], and all the prices."""
    policy = jax.checkpoint_policies.save_only_these_names("mixed", "inner")
    layer = jax.checkpoint(experts_layer, policy=policy)
    x = params["emb"][batch["x"]]
    x, prices = lax.scan(layer, x, params["layers"])
    scores = jnp.dot(
        rms_norm(x, params["norm"]), params["out"], preferred_element_type=jnp.float32
    )
    z = jnp.mean(jnp.square(jax.nn.logsumexp(scores, axis=-1)))
    return jnp.mean(cross_entropy(scores, batch["y"])) + Z_LOSS * z + jnp.sum(prices)


def lion(masters: Any, gradients: Any, momentum: Any) -> tuple[Any, Any]:
    """Parameters and momentum, in bfloat16, after a step by signs alone."""

    def updated(master: Array, gradient: Array, old: Array) -> Array:
        direction = jnp.sign(FAST * old.astype(jnp.float32) + (1 - FAST) * gradient)
        return master - RATE * (direction + DECAY * master)

    def remembered(gradient: Array, old: Array) -> Array:
        return bfloat16(SLOW * old.astype(jnp.float32) + (1 - SLOW) * gradient)

    masters = jax.tree.map(updated, masters, gradients, momentum)
    return masters, jax.tree.map(remembered, gradients, momentum)


def experts_step(state: Tree, batch: Tree) -> tuple[Tree, Array]:
    """New state and the loss; params: the masters in bfloat16, which alone are used."""
    loss, gradients = jax.value_and_grad(experts_loss)(state["params"], batch)
    gradients = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
    gradients = clipped(gradients, 1.0)
    masters, momentum = lion(state["masters"], gradients, state["momentum"])
    params = bfloat16(masters)
    return {"params": params, "masters": masters, "momentum": momentum}, loss


def scattered(
    batch: int = 64, length: int = 1024, width: int = 1024, vocab: int = 32_000
) -> Target:
    """Jiang et al., 2024, small: four layers, two of eight experts for a token."""
    layers, experts, inner = 4, 8, 2 * width
    stacked = {
        "norm1": (layers, width), "norm2": (layers, width),
        "qkv": (layers, width, 3 * width), "o": (layers, width, width),
        "router": (layers, width, experts),
        "gate": (layers, experts, width, inner),
        "up": (layers, experts, width, inner),
        "down": (layers, experts, inner, width),
    }  # fmt: skip
    dims: Tree = {
        "emb": (vocab, width), "layers": stacked,
        "norm": (width,), "out": (width, vocab),
    }  # fmt: skip

    def is_dims(x: Any) -> bool:
        return isinstance(x, tuple)

    params = jax.tree.map(lambda d: half(*d), dims, is_leaf=is_dims)
    masters = jax.tree.map(lambda d: shape(*d), dims, is_leaf=is_dims)
    state = {"params": params, "masters": masters, "momentum": params}
    tokens = whole(batch, length)
    return experts_step, (state, {"x": tokens, "y": tokens})

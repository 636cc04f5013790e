"""The trunk of a model that folds proteins, its rounds, its loss and its step.

All is written for one protein; gradients are taken, and clipped, of each on its own.

Letters: B batch, A aligned sequences, R residues, M features of the alignment,
Z features of a pair.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.step import Target, Tree, bfloat16, shape, whole
from benchmarks.strangers.triangles import (
    block_shapes,
    evoformer_block,
    linear,
    linear_shapes,
    norm,
    norm_shapes,
)

RECYCLES = 3
KINDS, AMINO, BINS = 23, 22, 64
REACH = 32  # how far apart residues are told from each other
CLIP = 0.1
SLOW = 0.999

# -- the trunk and its loss --------------------------------------------------------


def embed(params: Tree, protein: Tree, previous: Any) -> Any:
    """First msa and pair of a protein, with what the last round made of them."""
    row, pair = previous
    target = jax.nn.one_hot(protein["target"], AMINO, dtype=jnp.bfloat16)
    weights = bfloat16(params)
    msa = linear(bfloat16(protein["msa"]), weights["msa"])
    msa = msa + linear(target, weights["target"])
    msa = msa.at[0].add(norm(row, params["row_norm"]))
    left, right = linear(target, weights["left"]), linear(target, weights["right"])
    offset = protein["index"][:, None] - protein["index"][None, :]
    offset = jnp.clip(offset, -REACH, REACH) + REACH
    near = jax.nn.one_hot(offset, 2 * REACH + 1, dtype=jnp.bfloat16)
    first = left[:, None] + right[None] + linear(near, weights["near"])
    return msa, first + norm(pair, params["pair_norm"])


def trunk(params: Tree, protein: Tree, previous: Any, key: Array) -> Any:
    """Msa and pair after all blocks, each made again on the way back."""
    masks = protein["mask"], protein["mask"][0][:, None] * protein["mask"][0][None]

    @jax.checkpoint
    def block(carry: Any, inputs: Any) -> tuple[Any, None]:
        weights, key = inputs
        return evoformer_block(carry, weights, masks, key), None

    blocks = params["blocks"]
    keys = jax.random.split(key, blocks["row"]["bias"].shape[0])
    start = embed(params["embed"], protein, previous)
    return lax.scan(block, start, (blocks, keys))[0]


def folding_loss(params: Tree, protein: Tree, key: Array) -> Array:
    """Cross-entropies of hidden residues [A, R] and of distances [R, R] of a protein.

    msa [A, R, 49], mask [A, R], target, index [R], truth, hidden [A, R], bins [R, R].
    """
    residues = protein["target"].shape[0]
    pair_width = params["embed"]["pair_norm"]["scale"].shape[0]
    msa_width = params["embed"]["row_norm"]["scale"].shape[0]
    zeros = (
        jnp.zeros((residues, msa_width), jnp.bfloat16),
        jnp.zeros((residues, residues, pair_width), jnp.bfloat16),
    )
    fixed = lax.stop_gradient(params)

    def recycle(i: Array, previous: Any) -> Any:
        msa, pair = trunk(fixed, protein, previous, jax.random.fold_in(key, i))
        return msa[0], pair

    previous = lax.stop_gradient(lax.fori_loop(0, RECYCLES, recycle, zeros))
    msa, pair = trunk(params, protein, previous, jax.random.fold_in(key, RECYCLES))
    msa, pair = msa.astype(jnp.float32), pair.astype(jnp.float32)
    chances = jax.nn.log_softmax(linear(msa, params["msa_head"]))
    truth = jax.nn.one_hot(protein["truth"], KINDS)
    losses = -jnp.sum(truth * chances, axis=-1) * protein["hidden"]
    loss = jnp.sum(losses) / (jnp.sum(protein["hidden"]) + 1e-8)
    half = linear(pair, params["distance_head"])
    chances = jax.nn.log_softmax(half + jnp.swapaxes(half, 0, 1))
    truth = jax.nn.one_hot(protein["bins"], BINS)
    mask = protein["mask"][0][:, None] * protein["mask"][0][None]
    losses = -jnp.sum(truth * chances, axis=-1) * mask
    return 2.0 * loss + 0.3 * jnp.sum(losses) / (jnp.sum(mask) + 1e-6)


def clipped_gradient(params: Tree, protein: Tree, key: Array) -> Any:
    """The loss of one protein, and its gradient with a norm of 0.1 at most."""
    loss, gradient = jax.value_and_grad(folding_loss)(params, protein, key)
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradient)))
    scale = CLIP / jnp.maximum(norm, CLIP)
    return loss, jax.tree.map(lambda g: g * scale, gradient)


def folding_step(state: Tree, batch: Tree) -> tuple[Tree, Array]:
    """New state (parameters, Adam's, their slow mean) and the mean loss."""
    step = state["step"] + 1
    size = batch["target"].shape[0]
    keys = jax.random.split(jax.random.fold_in(jax.random.PRNGKey(0), step), size)
    each = jax.vmap(clipped_gradient, in_axes=(None, 0, 0))
    losses, gradients = each(state["params"], batch, keys)
    gradients = jax.tree.map(lambda g: jnp.mean(g, axis=0), gradients)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], gradients)
    nu = jax.tree.map(lambda n, g: 0.999 * n + 0.001 * g * g, state["nu"], gradients)
    time = step.astype(jnp.float32)
    rate = 1e-3 * jnp.minimum(1.0, time / 1000)
    rate = rate * jnp.sqrt(1 - 0.999**time) / (1 - 0.9**time)
    params = jax.tree.map(
        lambda p, m, n: p - rate * m / (jnp.sqrt(n) + 1e-6), state["params"], mu, nu
    )
    slow = jax.tree.map(lambda s, p: SLOW * s + (1 - SLOW) * p, state["slow"], params)
    state = {"params": params, "mu": mu, "nu": nu, "slow": slow, "step": step}
    return state, jnp.mean(losses)


def evoformer(
    batch: int = 8, residues: int = 256, sequences: int = 128, blocks: int = 48
) -> Target:
    """Jumper et al., 2021, without extra sequences, templates and the structure."""
    msa, pair = 256, 128
    embedding = {
        "msa": linear_shapes(49, msa), "target": linear_shapes(AMINO, msa),
        "left": linear_shapes(AMINO, pair), "right": linear_shapes(AMINO, pair),
        "near": linear_shapes(2 * REACH + 1, pair),
        "row_norm": norm_shapes(msa), "pair_norm": norm_shapes(pair),
    }  # fmt: skip
    stacked = jax.tree.map(lambda x: shape(blocks, *x.shape), block_shapes(msa, pair))
    params = {
        "embed": embedding, "blocks": stacked, "msa_head": linear_shapes(msa, KINDS),
        "distance_head": linear_shapes(pair, BINS),
    }  # fmt: skip
    state = {
        "params": params, "mu": params, "nu": params, "slow": params, "step": whole(),
    }  # fmt: skip
    proteins = {
        "msa": shape(batch, sequences, residues, 49),
        "mask": shape(batch, sequences, residues),
        "hidden": shape(batch, sequences, residues),
        "truth": whole(batch, sequences, residues),
        "target": whole(batch, residues), "index": whole(batch, residues),
        "bins": whole(batch, residues, residues),
    }  # fmt: skip
    return folding_step, (state, proteins)

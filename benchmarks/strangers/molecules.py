"""A network of molecules: energies, and the forces that are their derivative.

All is written for one molecule, then mapped over many. Letters: B batch, A atoms,
E edges, D features, N heads, R radial functions.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.ops import segment_max, segment_sum

from benchmarks.strangers.language import clipped
from benchmarks.strangers.step import Target, Tree, adam, shape, whole

CUTOFF = 6.0
RADIAL = 64
HEADS = 8
ENERGY_WEIGHT, FORCE_WEIGHT = 1.0, 100.0
EMA_DECAY = 0.999


def mlp(x: Array, weights: Tree) -> Array:
    """Two layers on x [..., D], with a SiLU between."""
    return jax.nn.silu(x @ weights["w1"] + weights["b1"]) @ weights["w2"]


def normed(x: Array, scale: Array) -> Array:
    """`x` [A, D] with mean 0 and variance 1 over D, scaled [D]."""
    x = x - jnp.mean(x, axis=-1, keepdims=True)
    return x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-5) * scale


def radial(distance: Array) -> tuple[Array, Array]:
    """Bumps [E, R] of distances [E], and how much each edge still counts [E]."""
    centres = jnp.linspace(0.0, CUTOFF, RADIAL)
    bumps = jnp.exp(-((distance[:, None] - centres) ** 2) * (RADIAL / CUTOFF) ** 2)
    fade = 0.5 * (jnp.cos(jnp.pi * jnp.minimum(distance / CUTOFF, 1.0)) + 1)
    return bumps, fade


def segment_softmax(scores: Array, target: Array, atoms: int) -> Array:
    """Shares [E, N] of scores [E, N] among the edges that end at the same atom."""
    largest = segment_max(scores, target, num_segments=atoms)
    largest = jax.lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0.0))
    risen = jnp.exp(scores - largest[target])
    total = segment_sum(risen, target, num_segments=atoms)
    return risen / (total[target] + 1e-9)


def interaction(h: Array, weights: Tree, edges: Tree) -> Array:
    """[A, D] of atoms h [A, D] that have heard each other along edges."""
    source, target, fade = edges["source"], edges["target"], edges["fade"]
    atoms, width = h.shape
    y = normed(h, weights["norm"])
    filters = mlp(edges["bumps"], weights["filter"])
    pairs = jnp.concatenate([y[source], y[target], filters], axis=-1)
    scores = mlp(pairs, weights["score"])
    shares = segment_softmax(scores, target, atoms) * fade[:, None]
    messages = ((y @ weights["value"])[source] * filters).reshape(-1, HEADS, width // 8)
    heard = messages * shares[:, :, None]
    heard = segment_sum(heard.reshape(-1, width), target, num_segments=atoms)
    h = h + heard @ weights["out"]
    return h + mlp(normed(h, weights["norm2"]), weights["mlp"])


def energy(params: Tree, positions: Array, molecule: Tree) -> Array:
    """The energy of one molecule whose atoms are at positions [A, 3].

    species [A]; source, target [E]: atoms; is_edge [E], is_atom [A]: 0 for padding.
    """
    source, target = molecule["source"], molecule["target"]
    apart = positions[source] - positions[target]
    distance = jnp.sqrt(jnp.sum(apart**2, axis=-1) + 1e-8)
    bumps, fade = radial(distance)
    edges = {
        "source": source, "target": target,
        "bumps": bumps, "fade": fade * molecule["is_edge"],
    }  # fmt: skip
    h = params["species"][molecule["species"]]
    for weights in params["layers"]:
        h = interaction(h, weights, edges)
    each = mlp(h, params["head"])[:, 0]
    return jnp.sum(each * molecule["is_atom"])


def molecule_loss(params: Tree, batch: Tree) -> tuple[Array, Tree]:
    """Absolute errors of energies [B], squared ones of forces [B, A, 3]."""
    energy_and_slope = jax.vmap(jax.value_and_grad(energy, argnums=1), (None, 0, 0))
    energies, slopes = energy_and_slope(params, batch["positions"], batch["molecule"])
    is_atom = batch["molecule"]["is_atom"]
    num_atoms = jnp.sum(is_atom, axis=1)
    energy_error = jnp.mean(jnp.abs(energies - batch["energy"]) / num_atoms)
    errors = jnp.sum((-slopes - batch["forces"]) ** 2, axis=-1) * is_atom
    force_error = jnp.sum(errors) / jnp.sum(num_atoms)
    loss = ENERGY_WEIGHT * energy_error + FORCE_WEIGHT * force_error
    return loss, {"energy": energy_error, "forces": force_error}


def molecule_step(state: tuple[Any, Any, Any], batch: Tree) -> Any:
    """New state (parameters, their slow copy, Adam's) and what is told of the step."""
    params, slow, optimizer = state
    loss_fn = jax.value_and_grad(molecule_loss, has_aux=True)
    (loss, told), gradients = loss_fn(params, batch)
    params, optimizer = adam(params, clipped(gradients, 10.0), optimizer)
    slow = jax.tree.map(
        lambda old, new: EMA_DECAY * old + (1 - EMA_DECAY) * new, slow, params
    )
    return (params, slow, optimizer), {"loss": loss, **told}


def forces(
    batch: int = 256, atoms: int = 64, edges: int = 1536, width: int = 256
) -> Target:
    """Schütt et al., 2017, with attention among edges: four layers, in float32."""

    def layers(before: int, after: int) -> Tree:
        return {
            "w1": shape(before, width), "b1": shape(width), "w2": shape(width, after),
        }  # fmt: skip

    layer = {
        "norm": shape(width), "norm2": shape(width),
        "filter": layers(RADIAL, width), "score": layers(3 * width, HEADS),
        "value": shape(width, width), "out": shape(width, width),
        "mlp": layers(width, width),
    }  # fmt: skip
    params = {
        "species": shape(100, width), "layers": [layer] * 4, "head": layers(width, 1),
    }  # fmt: skip
    molecule = {
        "species": whole(batch, atoms), "is_atom": shape(batch, atoms),
        "source": whole(batch, edges), "target": whole(batch, edges),
        "is_edge": shape(batch, edges),
    }  # fmt: skip
    places = shape(batch, atoms, 3)
    molecules = {
        "molecule": molecule, "positions": places,
        "energy": shape(batch), "forces": places,
    }  # fmt: skip
    return molecule_step, ((params, params, (params, params, whole())), molecules)

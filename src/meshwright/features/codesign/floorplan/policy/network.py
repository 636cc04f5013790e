"""The policy's network: a graph network, a deconvolution head, and maps of the cells.

The graph network gives each block a vector from the netlist alone. From the current
macro's the head makes a field over the canvas; it is joined with what is seen of each cell,
and convolutions give the cell's log probability. Cells that are not free have none.
Letters in shapes: N nodes, E edges, H width, S episodes, T steps, G side of the grid.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from meshwright.features.codesign.floorplan.policy.episodes import NUM_MAPS
from meshwright.features.codesign.floorplan.policy.inputs import (
    FIELD,
    NUM_FEATURES,
    ChipArrays,
)
from meshwright.learn.layers import (
    Params,
    apply,
    convolution,
    convolve,
    deconvolve,
    dense,
    edge_convolution,
    normalize,
)

WIDTH = 16
NUM_LAYERS = 3
"""Layers of the graph network, as in Circuit Training."""

_SEED = 4
"""Side of the smallest field, which is doubled twice."""

_CHANNELS = 8

_NEVER = -1e9
"""Logit of cells that are not free."""


def init_network(key: Any) -> Params:
    """Random parameters; the last layers are 0, so that all free cells are equal."""
    keys = iter(jax.random.split(key, 10 + 2 * NUM_LAYERS))
    layers = [
        {
            "message": dense(next(keys), 2 * WIDTH + 1, WIDTH),
            "update": dense(next(keys), WIDTH, WIDTH),
        }
        for _ in range(NUM_LAYERS)
    ]
    last = dense(next(keys), _CHANNELS, 1)
    gates = dense(next(keys), WIDTH, NUM_MAPS)
    return {
        "node": dense(next(keys), NUM_FEATURES, WIDTH),
        "layers": layers,
        "join": dense(next(keys), 2 * WIDTH + NUM_FEATURES, WIDTH),
        "seed": dense(next(keys), WIDTH, _SEED * _SEED * _CHANNELS),
        "up": [convolution(next(keys), _CHANNELS, _CHANNELS) for _ in range(2)],
        "field": dense(next(keys), _CHANNELS, _CHANNELS),
        "maps": convolution(next(keys), NUM_MAPS, _CHANNELS),
        "cells": dense(next(keys), _CHANNELS, _CHANNELS),
        "last": jax.tree.map(jnp.zeros_like, last),
        "gates": jax.tree.map(jnp.zeros_like, gates),
    }


def log_probabilities(params: Params, chip: ChipArrays, steps: Any, maps: Any) -> Any:
    """Log probabilities of the cells in steps of several episodes, [S, T, G * G].

    steps: numbers of the steps, [T]. maps: what is seen of each cell, [S, T, G, G, 3].
    """
    return cell_log_probabilities(params, step_arrays(params, chip, steps), maps)


def step_arrays(params: Params, chip: ChipArrays, steps: Any) -> tuple[Any, Any]:
    """What the netlist alone says about steps: weights of maps [T, 3], and fields."""
    vectors = _macro_vectors(params, chip, steps)
    field = apply(params["field"], _field(params, chip, vectors))
    return apply(params["gates"], vectors), field


def cell_log_probabilities(params: Params, arrays: tuple[Any, Any], maps: Any) -> Any:
    """Log probabilities [S, T, G * G] of the cells, from the arrays of `step_arrays`."""
    side = maps.shape[2]
    gates, field = arrays
    seen = convolve(params["maps"], maps.reshape(-1, side, side, NUM_MAPS))
    joined = seen.reshape(*maps.shape[:4], _CHANNELS) + field[None]
    cells = jax.nn.relu(joined)
    cells = jax.nn.relu(apply(params["cells"], cells) + cells)
    logits = apply(params["last"], cells)[..., 0]
    logits = logits + (maps * gates[None, :, None, None]).sum(axis=-1)
    logits = jnp.where(maps[..., 0] > 0, logits, _NEVER)
    return jax.nn.log_softmax(logits.reshape(*maps.shape[:2], -1), axis=-1)


def _macro_vectors(params: Params, chip: ChipArrays, steps: Any) -> Any:
    """The vector of the macro of each step, [T, H]."""
    x = normalize(jax.nn.gelu(apply(params["node"], chip.features)))
    for layer in params["layers"]:
        x = edge_convolution(chip.edges, x, layer["message"], layer["update"])
    mask = chip.node_mask[:, None]
    whole = (x * mask).sum(axis=0) / jnp.maximum(mask.sum(), 1)
    macros = chip.order[steps]
    wholes = jnp.broadcast_to(whole, (len(steps), WIDTH))
    parts = [x[macros], wholes, chip.features[macros]]
    return normalize(jax.nn.gelu(apply(params["join"], jnp.concatenate(parts, axis=1))))


def _field(params: Params, chip: ChipArrays, vectors: Any) -> Any:
    """A field over the canvas for each macro, at the centres of cells, [T, G, G, C]."""
    seed = jax.nn.gelu(apply(params["seed"], vectors))
    field = seed.reshape(-1, _SEED, _SEED, _CHANNELS)
    for layer in params["up"]:
        field = jax.nn.gelu(deconvolve(layer, field))
    assert field.shape[1] == FIELD
    across = jnp.einsum("gf,tyfc->tygc", chip.across, field)
    return jnp.einsum("gf,tfxc->tgxc", chip.up, across)

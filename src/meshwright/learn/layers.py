"""Layers of networks, as plain functions over JAX arrays and their parameters.

Letters in shapes: N nodes, H width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.learn.graphs import GraphArrays, mean_of_receivers, mean_of_senders

Params = Mapping[str, Any]


def dense(key: Any, inputs: int, outputs: int) -> Params:
    """Random parameters of an affine map, with the variance of LeCun et al. (1998)."""
    kernel = jax.random.normal(key, (inputs, outputs)) / jnp.sqrt(inputs)
    return {"kernel": kernel, "bias": jnp.zeros(outputs)}


def apply(params: Params, x: Any) -> Any:
    """x @ kernel + bias, over the last dim of x."""
    return x @ params["kernel"] + params["bias"]


def denses(keys: Iterator[Any], names: Sequence[str], width: int) -> dict[str, Any]:
    """Random parameters of affine maps [H] to [H], by name, with one key each."""
    return {name: dense(next(keys), width, width) for name in names}


def sage_convolution(
    graph: GraphArrays, x: Any, itself: Params, senders: Params, receivers: Params
) -> Any:
    """Vectors [N, ..., H] after a SAGE convolution (Hamilton et al., NeurIPS 2017).

    It runs over edges in both directions.
    itself: parameters of the affine map of a node's own vector. senders, receivers: those
        of the affine maps before the mean over its senders, and over its receivers.
    """
    y = apply(itself, x)
    y = y + mean_of_senders(graph, apply(senders, x))
    return jax.nn.gelu(y + mean_of_receivers(graph, apply(receivers, x)))


def edge_convolution(
    edges: tuple[Any, Any, Any], x: Any, message: Params, update: Params
) -> Any:
    """Vectors [N, H] after a convolution whose edges have vectors of their own.

    The vector of an edge is computed from both of its nodes and its weight, that of a node
    from the mean of its edges' (Mirhoseini et al., Nature 2021), and added to what it was.

    edges: receivers and senders [E], sorted by receiver, and weights [E]; an edge of weight
        0 is padding. message: parameters of an affine map [2 H + 1] to [H] for edges.
    update: of one [H] to [H] for nodes.
    """
    receivers, senders, weights = edges
    width, kernel = x.shape[1], message["kernel"]
    # The map of both nodes' vectors is the sum of two maps, each once for a node.
    ends = (x @ kernel[:width])[receivers] + (x @ kernel[width : 2 * width])[senders]
    vectors = jax.nn.gelu(ends + weights[:, None] * kernel[-1] + message["bias"])
    real = (weights > 0).astype(x.dtype)[:, None]
    sums = jax.ops.segment_sum(
        jnp.concatenate([vectors * real, real], axis=1),
        receivers,
        len(x),
        indices_are_sorted=True,
    )
    mean = sums[:, :-1] / jnp.maximum(sums[:, -1:], 1)
    return normalize(x + jax.nn.gelu(apply(update, mean)))


def convolution(key: Any, inputs: int, outputs: int) -> Params:
    """Random parameters of a convolution over 3 by 3 places, with LeCun's variance."""
    kernel = jax.random.normal(key, (3, 3, inputs, outputs)) / jnp.sqrt(9 * inputs)
    return {"kernel": kernel, "bias": jnp.zeros(outputs)}


def convolve(params: Params, x: Any) -> Any:
    """The convolution of x [B, rows, columns, C], which keeps rows and columns."""
    dims = ("NHWC", "HWIO", "NHWC")
    kernel = params["kernel"]
    done = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=dims
    )
    return done + params["bias"]


def deconvolve(params: Params, x: Any) -> Any:
    """The transposed convolution of x [B, rows, columns, C]; both sides are doubled."""
    dims = ("NHWC", "HWIO", "NHWC")
    done = jax.lax.conv_transpose(
        x, params["kernel"], (2, 2), "SAME", dimension_numbers=dims
    )
    return done + params["bias"]


def normalize(x: Any) -> Any:
    """x, shifted and scaled to mean 0 and variance 1 over the last dim."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)

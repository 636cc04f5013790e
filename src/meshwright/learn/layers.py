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


def normalize(x: Any) -> Any:
    """x, shifted and scaled to mean 0 and variance 1 over the last dim."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)

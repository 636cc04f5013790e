"""Weights whose largest singular value is 1, by power iteration.

T. Miyato, T. Kataoka, M. Koyama, Y. Yoshida, "Spectral Normalization for Generative
Adversarial Networks", ICLR 2018, algorithm 1. A weight [..., O] counts as a matrix of O
columns, with all other dims as rows; its vector [O] is kept from step to step, so that one
iteration each is enough.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array

EPSILON = 1e-12
"""Keeps the direction of a vector of zeros finite; the authors' value."""


def _unit(x: Array) -> Array:
    return x / (jnp.sqrt(jnp.sum(jnp.square(x))) + EPSILON)


def largest_singular_value(weight: Array, vector: Array) -> tuple[Array, Array]:
    """That of a weight [..., O] as its right vector [O] has it, and the next vector.

    From below, and the nearer the more often the vector has been turned. Gradients see
    the value as a bilinear form in the weight, with both vectors fixed.
    """
    fixed = jax.lax.stop_gradient(weight)
    left = _unit(jnp.tensordot(fixed, vector, axes=1))
    vector = _unit(jnp.tensordot(left, fixed, axes=left.ndim))
    return jnp.sum(left * jnp.tensordot(weight, vector, axes=1)), vector


def first_vectors(params: dict[str, Any], key: Array) -> dict[str, Any]:
    """A random unit vector for each weight of two dims or more, at the weight's path."""
    weights = {path: w for path, w in flatten_dict(params).items() if w.ndim > 1}
    keys = jax.random.split(key, len(weights))
    return unflatten_dict(
        {
            path: _unit(jax.random.normal(k, weight.shape[-1:]))
            for k, (path, weight) in zip(keys, weights.items(), strict=True)
        }
    )


def normalise(
    params: dict[str, Any], vectors: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Weights divided by their largest singular values, and the vectors turned once.

    What has no vector, such as a bias, stays as it is.
    """
    weights, turned = flatten_dict(params), {}
    for path, vector in flatten_dict(vectors).items():
        value, turned[path] = largest_singular_value(weights[path], vector)
        weights[path] = weights[path] / value
    return unflatten_dict(weights), unflatten_dict(turned)

"""Shampoo, which optax 0.2.8 does not hold whole, from the root that it does hold."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

EPSILON = 1e-3
"""Start of the statistics: keeps their roots well conditioned on one batch."""


class Statistics(NamedTuple):
    """Per matrix the sums of G G^T and G^T G; for other tensors of G * G."""

    left: object
    right: object


def shampoo(learning_rate: float) -> optax.GradientTransformation:
    """L^(-1/4) G R^(-1/4) for matrices (Gupta et al., ICML 2018), AdaGrad otherwise."""

    def init(params):
        def left(p):
            return EPSILON * (jnp.eye(p.shape[0]) if p.ndim == 2 else jnp.ones_like(p))

        def right(p):
            return EPSILON * (jnp.eye(p.shape[1]) if p.ndim == 2 else jnp.zeros(()))

        return Statistics(jax.tree.map(left, params), jax.tree.map(right, params))

    def update(gradients, state, params=None):
        del params

        def root(matrix):
            return optax.matrix_inverse_pth_root(matrix, 4)[0]

        def left(g, total):
            return total + (g @ g.T if g.ndim == 2 else g * g)

        def right(g, total):
            return total + (g.T @ g if g.ndim == 2 else 0.0)

        def step(g, lhs, rhs):
            whitened = root(lhs) @ g @ root(rhs) if g.ndim == 2 else g / jnp.sqrt(lhs)
            return -learning_rate * whitened

        state = Statistics(
            jax.tree.map(left, gradients, state.left),
            jax.tree.map(right, gradients, state.right),
        )
        return jax.tree.map(step, gradients, *state), state

    return optax.GradientTransformation(init, update)

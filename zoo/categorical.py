"""Returns as chances of fixed atoms: the distributions of C51.

M. Bellemare, W. Dabney, R. Munos, "A Distributional Perspective on Reinforcement
Learning", ICML 2017. Letters: B batch, A atoms.
"""

import jax.numpy as jnp
from jax import Array


def project(returns: Array, chances: Array, atoms: Array) -> Array:
    """Probabilities [B, A] of evenly spaced atoms [A], from those [B, A] of returns [B, A].

    The probability of each return is divided between its two neighbours by distance;
    beyond the ends it goes to the last atom (eq. 7). This keeps sums, and means of returns
    between the ends.
    """
    returns = jnp.clip(returns, atoms[0], atoms[-1])
    distance = jnp.abs(returns[:, None, :] - atoms[:, None]) / (atoms[1] - atoms[0])
    return jnp.sum(jnp.maximum(1 - distance, 0) * chances[:, None, :], axis=-1)


def mean_return(chances: Array, atoms: Array) -> Array:
    """The return [B] that chances [B, A] of atoms [A] promise."""
    return jnp.sum(chances * atoms, axis=-1)

"""How far two sets of images are from each other, without a net that looks at them.

N. Bonneel, J. Rabin, G. Peyré, H. Pfister, "Sliced and Radon Wasserstein Barycenters of
Measures", Journal of Mathematical Imaging and Vision 51, 2015.

Letters: K classes, M images of a class, P pixels.
"""

import jax
import jax.numpy as jnp
from jax import Array

DIRECTIONS = 64
"""Slices that the distance averages over; always the same ones."""


def sliced_distance(images: Array, others: Array) -> Array:
    """The sliced Wasserstein distance of sets [K, M, P], a mean over classes.

    Along a random direction through the space of pixels, it is the mean difference of
    sorted places. 0 for the same set in any order.
    """
    along = jax.random.normal(jax.random.key(0), (images.shape[-1], DIRECTIONS))
    along = along / jnp.linalg.norm(along, axis=0)
    places = [jnp.sort(x @ along, axis=1) for x in (images, others)]
    return jnp.mean(jnp.abs(places[0] - places[1]))

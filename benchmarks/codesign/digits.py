"""Training of small models on scikit-learn's 8 x 8 digits, 1,797 images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

TRAINED, BATCH, RATE = 1297, 32, 0.01
"""Images to train on, images of a step, and the first learning rate of Adam."""


def digits() -> tuple[Any, Any]:
    """Images [1797, 8, 8, 1] and labels [1797] in a fixed random order."""
    from sklearn.datasets import load_digits  # of the extra `search`

    found: Any = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images = (found.images[order, :, :, None] / 16 - 0.3).astype(np.float32)
    return jnp.asarray(images), jnp.asarray(found.target[order])


def accuracies(
    init: Callable[[Any], Any], apply: Callable[..., Any], steps: int, checks: int
) -> Callable[..., Any]:
    """A function from a key, data and further inputs to accuracies during training.

    apply: logits of parameters, images and the further inputs. The accuracy on the images
    not trained on is taken `checks` times, the last one after all steps. The learning rate
    falls as a cosine over all steps.
    """

    def loss(params: Any, images: Any, labels: Any, *more: Any) -> Any:
        logits = jax.nn.log_softmax(apply(params, images, *more))
        return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()

    def train(key: Any, images: Any, labels: Any, *more: Any) -> Any:
        first, key = jax.random.split(key)
        params = init(first)
        zeros = jax.tree.map(jnp.zeros_like, params)

        def step(carry: Any, index: Any) -> tuple[Any, None]:
            chosen = jax.random.randint(
                jax.random.fold_in(key, index), (BATCH,), 0, TRAINED
            )
            grads = jax.grad(loss)(carry[0], images[chosen], labels[chosen], *more)
            return _adam(*carry, grads, index, steps), None

        def part(carry: Any, begin: Any) -> tuple[Any, Any]:
            carry, _ = jax.lax.scan(step, carry, begin + jnp.arange(steps // checks))
            guesses = apply(carry[0], images[TRAINED:], *more).argmax(-1)
            return carry, (guesses == labels[TRAINED:]).mean()

        begins = jnp.arange(checks) * (steps // checks)
        return jax.lax.scan(part, (params, zeros, zeros), begins)[1]

    return jax.jit(train)


def _adam(
    params: Any, first: Any, second: Any, grads: Any, index: Any, steps: int
) -> tuple[Any, Any, Any]:
    """Parameters and moments after a step of Adam (Kingma and Ba, ICLR 2015)."""
    mix = partial(jax.tree.map, lambda old, new, keep: keep * old + (1 - keep) * new)
    keep = jax.tree.map(lambda _: 0.9, grads), jax.tree.map(lambda _: 0.99, grads)
    first = mix(first, grads, keep[0])
    second = mix(second, jax.tree.map(jnp.square, grads), keep[1])
    rate = RATE * 0.5 * (1 + jnp.cos(jnp.pi * index / steps))
    scale = 1 - 0.9 ** (index + 1), 1 - 0.99 ** (index + 1)

    def moved(p: Any, m: Any, v: Any) -> Any:
        return p - rate * (m / scale[0]) / (jnp.sqrt(v / scale[1]) + 1e-6)

    return jax.tree.map(moved, params, first, second), first, second

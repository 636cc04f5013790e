"""The train step of these programs, and their batches."""

from __future__ import annotations

import jax
import numpy as np
import optax

BATCH = 16


def train_step_of(loss_fn, optimizer):
    """A train step from `loss_fn(params, stats, batch, key) -> (loss, stats)`."""

    def train_step(params, stats, opt_state, batch, key):
        grad_fn = jax.value_and_grad(loss_fn, has_aux=True)
        (loss, stats), gradients = grad_fn(params, stats, batch, key)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), stats, opt_state, loss

    return train_step


def drawn(shapes):
    """Parameters of these shapes: scales near 1, matrices by fan-in, biases small.

    NumPy draws them: to compile a library's initialisers takes longer than the step.
    Keys become keys and integers zeros, for trees that hold more than parameters.
    """
    rng = np.random.default_rng(3)

    def leaf(path, shape):
        if jax.dtypes.issubdtype(shape.dtype, jax.dtypes.prng_key):
            return jax.random.split(jax.random.key(0), shape.shape)
        if not np.issubdtype(shape.dtype, np.floating):
            return np.zeros(shape.shape, shape.dtype)
        noise = rng.standard_normal(shape.shape, np.float32)
        name = jax.tree_util.keystr(path).lower()
        if "scale" in name or (shape.ndim == 1 and "weight" in name):
            return 1 + 0.1 * noise
        fan_in = shape.size // shape.shape[-1] if shape.ndim > 1 else 100
        return noise * np.float32(fan_in**-0.5)

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def zeros(shapes):
    """The statistics that a model starts with."""
    return jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)


def vectors(width: int, classes: int) -> dict[str, np.ndarray]:
    """A batch of vectors with labels."""
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((BATCH, width), np.float32),
        "label": rng.integers(0, classes, BATCH, np.int32),
    }


def images(size: int, channels: int, classes: int) -> dict[str, np.ndarray]:
    """A batch of images [batch, size, size, channels] with labels."""
    rng = np.random.default_rng(1)
    return {
        "x": rng.standard_normal((BATCH, size, size, channels), np.float32),
        "label": rng.integers(0, classes, BATCH, np.int32),
    }


def text(sequence: int, vocab: int) -> dict[str, np.ndarray]:
    """A batch of tokens and the tokens after them."""
    windows = np.random.default_rng(2).integers(
        0, vocab, (BATCH, sequence + 1), np.int32
    )
    return {"inputs": windows[:, :-1], "targets": windows[:, 1:]}


def mean_cross_entropy(logits, labels):
    """The loss that all of them share."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return losses.mean()

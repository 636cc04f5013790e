"""The train step of these programs, and the batches they eat."""

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
    windows = np.random.default_rng(2).integers(0, vocab, (BATCH, sequence + 1), np.int32)
    return {"inputs": windows[:, :-1], "targets": windows[:, 1:]}


def mean_cross_entropy(logits, labels):
    """The loss that all of them share."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return losses.mean()

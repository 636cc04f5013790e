"""Train steps of models in haiku."""

from __future__ import annotations

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from tests.programs.optimizers import shampoo
from tests.programs.step import (
    drawn,
    images,
    mean_cross_entropy,
    text,
    train_step_of,
    zeros,
)


def _program(fn, optimizer, batch, name="x", labels="label"):
    """(train step, arguments) of a function that `hk.transform_with_state` takes."""
    model = hk.transform_with_state(fn)
    shapes = jax.eval_shape(model.init, jax.random.PRNGKey(0), batch[name])
    params, stats = drawn(shapes[0]), zeros(shapes[1])

    def loss_fn(params, stats, batch, key):
        logits, stats = model.apply(params, stats, key, batch[name])
        return mean_cross_entropy(logits, batch[labels]), stats

    args = (params, stats, optimizer.init(params), batch, jax.random.PRNGKey(1))
    return train_step_of(loss_fn, optimizer), args


def _norm(x):
    return hk.LayerNorm(axis=-1, create_scale=True, create_offset=True)(x)


def _transformer(tokens):
    init = hk.initializers.VarianceScaling(1.0)
    x = hk.Embed(64, 32)(tokens)
    mask = jnp.tril(jnp.ones((1, 1, tokens.shape[1], tokens.shape[1]), bool))
    for _ in range(2):
        y = _norm(x)
        attention = hk.MultiHeadAttention(4, 8, w_init=init, with_bias=False)
        x = x + attention(y, y, y, mask=mask)
        y = hk.Linear(32)(jax.nn.gelu(hk.Linear(64)(_norm(x))))
        x = x + hk.dropout(hk.next_rng_key(), 0.1, y)
    return hk.Linear(64)(_norm(x))


def _resnet(x):
    def convolve(y, features, stride=1):
        y = hk.Conv2D(features, 3, stride, with_bias=False)(y)
        return hk.BatchNorm(True, True, 0.9)(y, is_training=True)

    x = jax.nn.relu(convolve(x, 8))
    for features, stride in ((8, 1), (16, 2)):
        y = convolve(jax.nn.relu(convolve(x, features, stride)), features)
        shortcut = x if x.shape == y.shape else convolve(x, features, stride)
        x = jax.nn.relu(y + shortcut)
    return hk.Linear(8)(x.mean((1, 2)))


def _lstm(tokens):
    x = hk.Embed(32, 16)(tokens)
    core = hk.LSTM(32)
    outputs, _ = hk.dynamic_unroll(
        core, x, core.initial_state(x.shape[0]), time_major=False
    )
    return hk.Linear(32)(outputs)


def _stack(tokens):
    x = hk.Embed(32, 32)(tokens)

    def layer(y):
        return y + hk.Linear(32)(jax.nn.gelu(hk.Linear(64)(_norm(y))))

    x = hk.experimental.layer_stack(3)(hk.remat(layer))(x)
    return hk.Linear(32)(x)


def transformer():
    """A transformer with dropout from haiku's key sequence, Adafactor."""
    optimizer = optax.adafactor(1e-2, min_dim_size_to_factor=16)
    return _program(_transformer, optimizer, text(16, 64), "inputs", "targets")


def resnet():
    """A residual network with haiku's batch-norm state, LAMB."""
    return _program(_resnet, optax.lamb(1e-3), images(16, 3, 8))


def lstm():
    """An LSTM under `hk.dynamic_unroll`, AdamW."""
    return _program(_lstm, optax.adamw(1e-3), text(8, 32), "inputs", "targets")


def stack():
    """Residual MLPs in a `layer_stack` under remat, Shampoo."""
    return _program(_stack, shampoo(1e-2), text(8, 32), "inputs", "targets")

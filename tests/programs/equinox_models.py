"""Train steps of models in equinox: one example each, mapped over the batch."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from tests.programs.step import (
    BATCH,
    drawn,
    images,
    mean_cross_entropy,
    text,
    train_step_of,
    vectors,
)


def _program(model, optimizer, batch, name="x", labels="label"):
    """(train step, arguments) of a module called as `model(x, key)` on one example."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    params = drawn(params)

    def loss_fn(params, stats, batch, key):
        model = eqx.combine(params, static)
        keys = jax.random.split(key, BATCH)
        logits = jax.vmap(model)(batch[name], keys)
        return mean_cross_entropy(logits, batch[labels]), stats

    args = (params, {}, optimizer.init(params), batch, jax.random.PRNGKey(1))
    return train_step_of(loss_fn, optimizer), args


class Perceptron(eqx.Module):
    """An MLP with layer norm and dropout."""

    mlp: eqx.nn.MLP
    norm: eqx.nn.LayerNorm
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        self.mlp = eqx.nn.MLP(32, 8, 64, 2, key=key)
        self.norm = eqx.nn.LayerNorm(32)
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x, key):
        return self.mlp(self.dropout(self.norm(x), key=key))


class Block(eqx.Module):
    """A pre-norm transformer block on one sequence [S, D]."""

    attention: eqx.nn.MultiheadAttention
    norms: list[eqx.nn.RMSNorm]
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(4, 32, dropout_p=0.1, key=keys[0])
        self.norms = [eqx.nn.RMSNorm(32), eqx.nn.RMSNorm(32)]
        self.up = eqx.nn.Linear(32, 64, key=keys[1])
        self.down = eqx.nn.Linear(64, 32, key=keys[2])

    def __call__(self, x, key):
        mask = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y, mask=mask, key=key)
        y = jax.vmap(self.up)(jax.vmap(self.norms[1])(x))
        return x + jax.vmap(self.down)(jax.nn.silu(y))


class Transformer(eqx.Module):
    """A language model of one block."""

    embedding: eqx.nn.Embedding
    block: Block
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.embedding = eqx.nn.Embedding(64, 32, key=keys[0])
        self.block = Block(keys[1])
        self.head = eqx.nn.Linear(32, 64, use_bias=False, key=keys[2])

    def __call__(self, tokens, key):
        x = self.block(jax.vmap(self.embedding)(tokens), key)
        return jax.vmap(self.head)(x)


class GRU(eqx.Module):
    """A classifier of sequences: a cell in `lax.scan`."""

    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(8, 32, key=first)
        self.head = eqx.nn.Linear(32, 8, key=second)

    def __call__(self, x, key):
        del key
        last, _ = jax.lax.scan(
            lambda h, row: (self.cell(row, h), None), jnp.zeros(32), x.reshape(4, 8)
        )
        return self.head(last)


class ConvNet(eqx.Module):
    """A convolution, then batch norm with means over the mapped axis "batch"."""

    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    pool: eqx.nn.MaxPool2d
    head: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.conv = eqx.nn.Conv2d(3, 8, 3, padding=1, use_bias=False, key=first)
        self.norm = eqx.nn.BatchNorm(8, axis_name="batch", mode="batch")
        self.pool = eqx.nn.MaxPool2d(2, 2)
        self.head = eqx.nn.Linear(8 * 8 * 8, 8, key=second)

    def __call__(self, x, state):
        y, state = self.norm(self.conv(jnp.moveaxis(x, -1, 0)), state)
        return self.head(self.pool(jax.nn.relu(y)).ravel()), state


def perceptron():
    """An MLP with layer norm and dropout, Lion."""
    return _program(Perceptron(jax.random.key(0)), optax.lion(1e-4), vectors(32, 8))


def transformer():
    """A transformer with dropout in the attention, AdamW."""
    model = Transformer(jax.random.key(0))
    return _program(model, optax.adamw(1e-3), text(16, 64), "inputs", "targets")


def gru():
    """A recurrent classifier, RMSProp."""
    return _program(GRU(jax.random.key(0)), optax.rmsprop(1e-3), vectors(32, 8))


def convnet():
    """A convolutional network with equinox's stateful batch norm, NAdam."""
    model, state = eqx.nn.make_with_state(ConvNet)(key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    optimizer = optax.nadam(1e-3)

    def loss_fn(params, state, batch, key):
        del key
        model = eqx.combine(params, static)
        mapped = jax.vmap(model, (0, None), (0, None), axis_name="batch")
        logits, state = mapped(batch["x"], state)
        return mean_cross_entropy(logits, batch["label"]), state

    batch = images(16, 3, 8)
    args = (params, state, optimizer.init(params), batch, jax.random.key(1))
    return train_step_of(loss_fn, optimizer), args

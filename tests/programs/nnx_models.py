"""Train steps of models in flax nnx, in its two styles: split and merge, or pytrees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tests.programs.step import drawn, images, mean_cross_entropy, text


def _model(kind):
    """A module of drawn parameters, ready to train."""
    graph, state = nnx.split(nnx.eval_shape(lambda: kind(nnx.Rngs(0))))
    model = nnx.merge(graph, drawn(state))
    model.train()
    return model


def _program(model, tx, batch, name="x", labels="label"):
    """(train step, arguments) with model and optimizer split from their graph."""
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def train_step(state, batch):
        model, optimizer = nnx.merge(graph, state)

        def loss_fn(model):
            return mean_cross_entropy(model(batch[name]), batch[labels])

        loss, gradients = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), loss

    return train_step, (state, batch)


class CNN(nnx.Module):
    """Two convolutions, batch norm, pooling, dropout."""

    def __init__(self, rngs):
        self.first = nnx.Conv(3, 8, (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.second = nnx.Conv(8, 16, (3, 3), rngs=rngs)
        self.dropout = nnx.Dropout(0.25, rngs=rngs)
        self.head = nnx.Linear(16 * 4 * 4, 8, rngs=rngs)

    def __call__(self, x):
        x = nnx.avg_pool(nnx.relu(self.norm(self.first(x))), (2, 2), (2, 2))
        x = nnx.avg_pool(nnx.relu(self.second(x)), (2, 2), (2, 2))
        return self.head(self.dropout(x.reshape(x.shape[0], -1)))


class Block(nnx.Module):
    """A pre-norm transformer block with RMS norms."""

    def __init__(self, rngs):
        self.attention_norm = nnx.RMSNorm(32, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            4, 32, use_bias=False, dropout_rate=0.1, decode=False, rngs=rngs
        )
        self.mlp_norm = nnx.RMSNorm(32, rngs=rngs)
        self.up = nnx.Linear(32, 64, rngs=rngs)
        self.down = nnx.Linear(64, 32, rngs=rngs)

    def __call__(self, x):
        mask = nnx.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + self.attention(self.attention_norm(x), mask=mask)
        return x + self.down(nnx.gelu(self.up(self.mlp_norm(x))))


class Transformer(nnx.Module):
    """A language model; its layers are stacked by vmap, run by scan and recomputed."""

    def __init__(self, rngs):
        self.embed = nnx.Embed(64, 32, rngs=rngs)

        @nnx.split_rngs(splits=2)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def stack(rngs):
            return Block(rngs)

        self.layers = stack(rngs)
        self.norm = nnx.RMSNorm(32, rngs=rngs)

    def __call__(self, tokens):
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        @nnx.remat
        def run(block, x):
            return block(x)

        return self.embed.attend(self.norm(run(self.layers, self.embed(tokens))))


class Mixer(nnx.Module):
    """An MLP-Mixer (Tolstikhin et al., 2021) of one layer."""

    def __init__(self, rngs):
        self.patches = nnx.Conv(3, 32, (4, 4), strides=(4, 4), rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(32, rngs=rngs) for _ in range(2)])
        self.tokens = nnx.Linear(16, 16, rngs=rngs)
        self.channels = nnx.Linear(32, 32, rngs=rngs)
        self.head = nnx.Linear(32, 8, rngs=rngs)

    def __call__(self, x):
        x = self.patches(x)
        x = x.reshape(x.shape[0], 16, 32)
        mixed = self.tokens(self.norms[0](x).swapaxes(1, 2)).swapaxes(1, 2)
        x = x + nnx.gelu(mixed)
        x = x + nnx.gelu(self.channels(self.norms[1](x)))
        return self.head(x.mean(1))


def cnn():
    """A convolutional network with batch norm and dropout, AdamW."""
    return _program(_model(CNN), optax.adamw(1e-3), images(16, 3, 8))


def transformer():
    """A transformer stacked by vmap, run by scan under remat, with dropout, Muon."""
    model = Transformer(nnx.Rngs(0))
    model.train()
    return _program(model, optax.contrib.muon(1e-3), text(16, 64), "inputs", "targets")


def mixer():
    """An MLP-Mixer handed over as a pytree, Adam with amsgrad."""
    model = _model(Mixer)
    tx = optax.amsgrad(1e-3)
    opt_state = tx.init(nnx.state(model, nnx.Param))

    @jax.jit
    def train_step(model, opt_state, batch):
        def loss_fn(model):
            return mean_cross_entropy(model(batch["x"]), batch["label"])

        loss, gradients = nnx.value_and_grad(loss_fn)(model)
        params = nnx.state(model, nnx.Param)
        updates, opt_state = tx.update(gradients, opt_state, params)
        nnx.update(model, optax.apply_updates(params, updates))
        return model, opt_state, loss

    return train_step, (model, opt_state, images(16, 3, 8))

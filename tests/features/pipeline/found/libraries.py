"""Models in the styles of nnx, equinox, linen and haiku."""

from __future__ import annotations

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tests.features.pipeline.found.training import (
    BATCH,
    VOCAB,
    WIDTH,
    Target,
    cross_entropy,
    tokens,
    trained,
    weights,
)
from tests.programs import linen_models, nnx_models
from tests.programs.equinox_models import Block
from tests.programs.step import drawn

_TEXT = {"x": tokens(1), "y": tokens(2)}
_VECTORS = {"x": weights(BATCH, WIDTH, seed=20), "y": weights(BATCH, WIDTH, seed=21)}


class _Mlp(nnx.Module):
    """Residual layers in a list, with layer norms."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(5)])
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, rngs=rngs) for _ in range(5)])

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + nnx.gelu(layer(norm(x)))
        return x


def nnx_mlp() -> Target:
    """A module and its optimizer, split into a graph and arrays."""
    graph, state = nnx.split(nnx.eval_shape(lambda: _Mlp(nnx.Rngs(0))))
    model = nnx.merge(graph, drawn(state))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def step(state, batch):
        model, optimizer = nnx.merge(graph, state)

        def loss(model):
            return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), value

    return step, (state, _VECTORS)


def nnx_transformer() -> Target:
    """Layers stacked by vmap, run by scan under remat, with dropout; Muon."""
    return nnx_models.transformer()


def linen_transformer() -> Target:
    """Layers in `nn.scan` under remat, with dropout; Lion."""
    return linen_models.transformer()


class _Decoder(eqx.Module):
    """A decoder of one sequence, with a list of blocks."""

    embedding: eqx.nn.Embedding
    blocks: list[Block]

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 4)
        self.embedding = eqx.nn.Embedding(VOCAB, WIDTH, key=keys[0])
        self.blocks = [Block(k) for k in keys[1:]]

    def __call__(self, x: jax.Array) -> jax.Array:
        x = jax.vmap(self.embedding)(x)
        for block in self.blocks:
            x = block(x, None)
        return x @ self.embedding.weight.T


class _Recurrent(eqx.Module):
    """Two LSTM cells over one sequence."""

    embedding: eqx.nn.Embedding
    cells: list[eqx.nn.LSTMCell]

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.embedding = eqx.nn.Embedding(VOCAB, WIDTH, key=keys[0])
        self.cells = [eqx.nn.LSTMCell(WIDTH, WIDTH, key=k) for k in keys[1:]]

    def __call__(self, x: jax.Array) -> jax.Array:
        x = jax.vmap(self.embedding)(x)
        for cell in self.cells:
            start = jnp.zeros(WIDTH), jnp.zeros(WIDTH)

            def over_time(state, row, cell=cell):
                state = cell(row, state)
                return state, state[0]

            _, x = jax.lax.scan(over_time, start, x)
        return x @ self.embedding.weight.T


def _of_equinox(kind: type, optimizer: optax.GradientTransformation) -> Target:
    model = eqx.nn.inference_mode(kind(jax.random.key(0)))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params, batch):
        scores = jax.vmap(eqx.combine(params, static))(batch["x"])
        return cross_entropy(scores, batch["y"])

    return trained(loss, drawn(params), _TEXT, optimizer)


def equinox_transformer() -> Target:
    """A module of one example, mapped over the batch; AdamW."""
    return _of_equinox(_Decoder, optax.adamw(1e-2))


def equinox_lstm() -> Target:
    """Loops over time of one example, mapped over the batch; RMSProp."""
    return _of_equinox(_Recurrent, optax.rmsprop(1e-3))


def haiku_mlp() -> Target:
    """A transformed function with named layers; NovoGrad."""

    def forward(x):
        for number in range(5):
            x = x + jnp.tanh(hk.Linear(WIDTH, name=f"layer{number}")(x))
        return x

    model = hk.without_apply_rng(hk.transform(forward))
    shapes = jax.eval_shape(model.init, jax.random.key(0), _VECTORS["x"])

    def loss(params, batch):
        return jnp.mean((model.apply(params, batch["x"]) - batch["y"]) ** 2)

    return trained(loss, drawn(shapes), _VECTORS, optax.novograd(1e-2))

"""Train steps of the models that Alpa's tests of `shard_parallel` partition.

Zheng et al., "Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed
Deep Learning", OSDI 2022. Sizes are arguments; a step hands back the state and no loss,
as theirs do. B examples, S tokens, H hidden, V words.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

from tests.alpa.bert import BertLayers, BertMLM, Mixture, Moe, MoeLM, Widths
from tests.programs.step import drawn, zeros

MIXTURE = Mixture(Widths(hidden=64, heads=16), group=32, experts=16)


class NormedState(TrainState):
    """A train state with the running statistics of batch norms."""

    stats: dict


def mlp(batch, hidden, layers=6):
    """Dense layers with relu between, [B, H] to [B, H], mean squared error."""

    class MLP(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(layers - 1):
                x = nn.relu(nn.Dense(hidden)(x))
            return nn.Dense(hidden)(x)

    rng = np.random.default_rng(0)
    data = {k: rng.standard_normal((batch, hidden), np.float32) for k in "xy"}

    def loss_fn(apply, batch):
        return jnp.mean((apply(batch["x"]) - batch["y"]) ** 2)

    return _program(MLP(), (data["x"],), loss_fn, data)


def bert_layers(batch, sequence, hidden, layers=2, is_remat=False):
    """Encoder layers of 8 heads on given hidden states [B, S, H], with dropout."""
    data = _hidden(batch, sequence, hidden) | {"rng": jax.random.PRNGKey(1)}

    def loss_fn(apply, batch):
        out = apply(batch["hidden"], batch["mask"], rngs={"dropout": batch["rng"]})
        return jnp.mean((out - batch["label"]) ** 2)

    model = BertLayers(Widths(hidden, 8), layers, is_remat)
    return _program(model, (data["hidden"], data["mask"]), loss_fn, data)


def tied_embedding(batch=8, sequence=8, vocab=1024, hidden=8):
    """One table [V, H] looks words up and scores them, nothing between."""

    class Tied(nn.Module):
        @nn.compact
        def __call__(self, x):
            table = nn.Embed(vocab, hidden)
            return table(x) @ table.embedding.T

    rng = np.random.default_rng(0)
    data = {k: rng.integers(0, vocab, (batch, sequence), np.int32) for k in "xy"}

    def loss_fn(apply, batch):
        return _cross_entropy(apply(batch["x"]), batch["y"]).sum()

    return _program(Tied(), (data["x"],), loss_fn, data)


def bert_mlm(batch, sequence, hidden, vocab, layers=2):
    """A masked language model, its output table tied to its input table."""
    model = BertMLM(Widths(hidden, 4), layers, vocab, sequence)
    return _language(model, _words(batch, sequence, vocab))


def moe_layer():
    """Attention, then a mixture of experts in GShard's style, on hidden states."""
    data = _hidden(64, 16, hidden=64)

    def loss_fn(apply, batch):
        return jnp.mean((apply(batch["hidden"], batch["mask"]) - batch["label"]) ** 2)

    return _program(Moe(MIXTURE), (data["hidden"], data["mask"]), loss_fn, data)


def moe_lm(is_factored=True):
    """A mixture layer and a dense one as language model; theirs has adafactor."""
    sequence, vocab = 16, 32
    optimizer = optax.adam(1e-2)
    if is_factored:
        optimizer = optax.adafactor(1e-2, min_dim_size_to_factor=4)
    model = MoeLM(MIXTURE, vocab, sequence)
    return _language(model, _words(64, sequence, vocab), optimizer)


def conv(batch, size, channels, layers):
    """Strided convolutions, each with batch norm, relu and max-pooling."""

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(layers):
                x = nn.Conv(channels, (3, 3), strides=(2, 2), use_bias=False)(x)
                x = nn.relu(nn.BatchNorm(use_running_average=False)(x))
                x = nn.max_pool(x, (2, 2), strides=(1, 1), padding="SAME")
            return x

    return _image_program(Net(), (batch, size, size, channels), size >> layers)


def depthwise(batch, size, channels, widening=8):
    """A wide depthwise convolution between two dense ones, then a batch norm."""
    wide = widening * channels

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Conv(wide, (3, 3), use_bias=False)(x)
            x = nn.Conv(wide, (3, 3), feature_group_count=wide, use_bias=False)(x)
            x = nn.Conv(channels, (3, 3), use_bias=False)(x)
            return nn.BatchNorm(use_running_average=False)(nn.relu(x))

    return _image_program(Net(), (batch, size, size, channels), size)


# -- train steps ----------------------------------------------------------------------


def _program(model, inputs, loss_fn, data, optimizer=None):
    """(train step, (state, batch)) of `loss_fn(apply, batch)`."""
    key = jax.random.key(0)
    shapes = jax.eval_shape(
        lambda k: model.init({"params": k, "dropout": k}, *inputs), key
    )
    state = TrainState.create(
        apply_fn=model.apply,
        params=drawn(shapes["params"]),
        tx=optimizer or optax.adam(1e-2),
    )

    def train_step(state, batch):
        def loss(params):
            def apply(*args, **kwargs):
                return state.apply_fn({"params": params}, *args, **kwargs)

            return loss_fn(apply, batch)

        return state.apply_gradients(grads=jax.grad(loss)(state.params))

    return train_step, (state, data)


def _image_program(model, shape, out):
    """(train step, (state, batch)) of a network of images with batch norms."""
    rng = np.random.default_rng(0)
    data = {
        "x": rng.standard_normal(shape, np.float32),
        "y": rng.standard_normal((shape[0], out, out, shape[3]), np.float32),
    }
    shapes = jax.eval_shape(model.init, jax.random.key(0), data["x"])
    state = NormedState.create(
        apply_fn=model.apply,
        params=drawn(shapes["params"]),
        tx=optax.adam(1e-2),
        stats=zeros(shapes["batch_stats"]),
    )

    def train_step(state, batch):
        def loss(params):
            variables = {"params": params, "batch_stats": state.stats}
            out, new = state.apply_fn(variables, batch["x"], mutable=["batch_stats"])
            return jnp.mean((out - batch["y"]) ** 2), new["batch_stats"]

        grads, stats = jax.grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads, stats=stats)

    return train_step, (state, data)


def _language(model, data, optimizer=None):
    def loss_fn(apply, batch):
        logits = apply(
            batch["words"], batch["mask"], batch["types"], batch["positions"],
            rngs={"dropout": batch["rng"]},
        )  # fmt: skip
        chosen = jnp.where(batch["labels"] > 0, 1.0, 0.0)
        loss = _cross_entropy(logits, batch["labels"])
        return (chosen * loss).sum() / chosen.sum()

    inputs = [data[k] for k in ("words", "mask", "types", "positions")]
    return _program(model, inputs, loss_fn, data, optimizer)


def _cross_entropy(logits, labels):
    """Per token, by one-hot labels: the vocabulary is summed, never looked up."""
    hot = jax.nn.one_hot(labels, logits.shape[-1])
    return -jnp.sum(hot * jax.nn.log_softmax(logits, axis=-1), axis=-1)


def _hidden(batch, sequence, hidden):
    rng = np.random.default_rng(0)
    shape = batch, sequence, hidden
    return {
        "hidden": rng.standard_normal(shape, np.float32),
        "label": rng.standard_normal(shape, np.float32),
        "mask": np.ones((batch, sequence), np.int32),
    }


def _words(batch, sequence, vocab):
    rng = np.random.default_rng(0)
    shape = batch, sequence
    return {
        "words": rng.integers(0, vocab, shape, np.int32),
        "labels": rng.integers(0, vocab, shape, np.int32),
        "types": np.zeros(shape, np.int32),
        "positions": np.broadcast_to(np.arange(sequence, dtype=np.int32), shape).copy(),
        "mask": np.ones(shape, np.int32),
        "rng": jax.random.PRNGKey(1),
    }

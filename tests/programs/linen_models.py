"""Train steps of models in flax linen."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from tests.programs.step import (
    drawn,
    images,
    mean_cross_entropy,
    text,
    train_step_of,
    vectors,
    zeros,
)


def _program(model, batch, optimizer, name="x", labels="label"):
    """(train step, arguments) of a module called as `model(x, train=...)`."""
    key = jax.random.key(0)
    stats = jax.eval_shape(lambda k: model.init(k, batch[name], train=False), key)
    params, stats = drawn(stats.pop("params")), zeros(stats)

    def loss_fn(params, stats, batch, key):
        logits, stats = model.apply(
            {"params": params, **stats},
            batch[name],
            train=True,
            rngs={"dropout": key},
            mutable=list(stats),
        )
        return mean_cross_entropy(logits, batch[labels]), stats

    args = (params, stats, optimizer.init(params), batch, jax.random.key(1))
    return train_step_of(loss_fn, optimizer), args


class MLP(nn.Module):
    """Two hidden layers with dropout."""

    @nn.compact
    def __call__(self, x, train):
        for _ in range(2):
            x = nn.gelu(nn.Dense(64)(x))
            x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(8)(x)


class Block(nn.Module):
    """A pre-norm transformer block; the attention without biases."""

    dropout: float = 0.1

    @nn.compact
    def __call__(self, x, mask, train):
        attention = nn.MultiHeadDotProductAttention(
            4, use_bias=False, dropout_rate=self.dropout, deterministic=not train
        )
        x = x + attention(nn.LayerNorm()(x), mask=mask)
        y = nn.gelu(nn.Dense(64)(nn.LayerNorm()(x)))
        return x + nn.Dense(x.shape[-1])(y)


class ViT(nn.Module):
    """Patches by a convolution, a class token, learned positions."""

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(32, (4, 4), strides=(4, 4))(x)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        first = self.param("first", nn.initializers.normal(0.02), (1, 1, 32))
        x = jnp.concatenate([jnp.tile(first, (x.shape[0], 1, 1)), x], axis=1)
        x = x + self.param("positions", nn.initializers.normal(0.02), (1, *x.shape[1:]))
        x = Block()(x, None, train)
        return nn.Dense(8)(nn.LayerNorm()(x)[:, 0])


class ResNetBlock(nn.Module):
    """Two convolutions with batch norms and a shortcut."""

    features: int
    strides: int = 1

    @nn.compact
    def __call__(self, x, train):
        def norm(y):
            return nn.BatchNorm(use_running_average=not train, momentum=0.9)(y)

        strides = (self.strides, self.strides)
        y = nn.Conv(self.features, (3, 3), strides, use_bias=False)(x)
        y = nn.relu(norm(y))
        y = norm(nn.Conv(self.features, (3, 3), use_bias=False)(y))
        if y.shape != x.shape:
            x = norm(nn.Conv(self.features, (1, 1), strides, use_bias=False)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    """Stem, max-pool, two blocks, the second with half the pixels."""

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(8, (3, 3), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        x = ResNetBlock(8)(x, train)
        x = ResNetBlock(16, strides=2)(x, train)
        return nn.Dense(8)(x.mean((1, 2)))


class LSTM(nn.Module):
    """A language model: embedding, one LSTM over time, logits."""

    @nn.compact
    def __call__(self, tokens, train):
        x = nn.Embed(32, 16)(tokens)
        x = nn.RNN(nn.OptimizedLSTMCell(32))(x)
        return nn.Dense(32)(nn.Dropout(0.2, deterministic=not train)(x))


class Transformer(nn.Module):
    """A language model whose layers run in one scan, each recomputed backward."""

    @nn.compact
    def __call__(self, tokens, train):
        embed = nn.Embed(64, 32)
        x = embed(tokens)
        mask = nn.make_causal_mask(tokens)

        def body(block, carry):
            return block(carry, mask, train), None

        layers = nn.scan(
            nn.remat(body, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            length=3,
        )
        x, _ = layers(Block(name="layers"), x)
        return embed.attend(nn.LayerNorm()(x))


def mlp():
    """A multilayer perceptron with dropout, AdamW on a warm-up and cosine schedule."""
    schedule = optax.warmup_cosine_decay_schedule(1e-4, 1e-3, 10, 100)
    return _program(MLP(), vectors(32, 8), optax.adamw(schedule))


def vit():
    """A vision transformer with dropout, AdamW after clipping by the global norm."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return _program(ViT(), images(16, 3, 8), optimizer)


def resnet():
    """A residual network with batch norm, SGD with momentum."""
    optimizer = optax.sgd(0.1, momentum=0.9, nesterov=True)
    return _program(ResNet(), images(16, 3, 8), optimizer)


def lstm():
    """An LSTM language model, Adafactor."""
    optimizer = optax.adafactor(1e-2, min_dim_size_to_factor=8)
    return _program(LSTM(), text(8, 32), optimizer, "inputs", "targets")


def transformer():
    """A transformer with layers in a scan under remat, dropout, Lion."""
    return _program(Transformer(), text(16, 64), optax.lion(1e-4), "inputs", "targets")

"""Primer and Primer-EZ: decoders found by evolution over transformer programs.

So et al., "Primer: Searching for Efficient Transformers for Language Modeling", NeurIPS
2021. Primer-EZ is the plain decoder with two changes: the activation of the MLP is a
squared ReLU, and a depthwise convolution of width 3 over time follows the projections to
q, k and v (multi-dconv-head attention). Primer adds three:

- q and k share a projection and its convolution; q has one more square matrix;
- the variance in a norm is the mean of x (x - mean), which has the same value;
- the norm comes before attention, and after the MLP: x + norm(mlp(x)).

The exact forms are those of the authors' code (google-research/primer, T5 models): a tap
is one number for each of the N H channels, its start is 1/2 for the present and 1/6 for
each position before it, and there is no bias.

Sizes are those of that code: 110M ("medium", T5 base) and 537M ("large"), plain MLPs with
bias, tied embeddings of 32,128 tokens, batches of 65,536 tokens. There positions are a
learned bias of distances that all layers share, here they are rotary, for the plain GPT
too. `benchmarks/zoo/primer.py` measures the effect of the changes.

Letters: B batch, S sequence, D d_model, N heads, H d_head, F d_ff.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

import meshwright as mw
from zoo.attention import attend
from zoo.decoder import (
    DTYPES,
    EPSILON,
    Block,
    Config,
    Decoder,
    mlp_of,
    scores,
    shapes,
    start,
    train_step,
)
from zoo.layers import rotary_angles, rotate
from zoo.text import batches, load_text
from zoo.training import run
from zoo.workload import Curve, Workload, choose, published_parameters, sized

WIDTH = 3
"""Positions that the convolution sees: the present and two before."""

PLAIN = partial(Config, norm="layer", gated=False, activation="gelu", tied=True)
SQUARED = partial(PLAIN, activation="squared_relu")
T5 = partial(SQUARED, vocab=32_128, sequence=512, batch=128, d_head=64, rate=1e-3)

SIZES = {
    "primer_small": T5(6, 512, 8, 2048),
    "primer_medium": T5(12, 768, 12, 3072),
    "primer_large": T5(24, 1024, 16, 8192),
}
TINY = SQUARED(2, 64, 4, 256, 256, 64, 16, rate=1e-2)


class CausalConv(nn.Module):
    """A depthwise convolution over time: each channel by its own taps."""

    width: int = WIDTH

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, S, N, H] of x [B, S, N, H]: of each position and `width` - 1 before it."""
        taps = self.param("taps", _first_tap_half, (self.width, *x.shape[2:]))
        taps = taps.astype(x.dtype)
        y = x * taps[0]
        for distance in range(1, self.width):
            past = jnp.pad(x, ((0, 0), (distance, 0), (0, 0), (0, 0)))
            y = y + past[:, : x.shape[1]] * taps[distance]
        return y


def _first_tap_half(key: Array, shape: tuple[int, ...]) -> Array:
    del key  # the same for all seeds
    return jnp.full(shape, 0.5 / shape[0]).at[0].set(0.5)


def primer_norm(x: Array, scale: Array, bias: Array) -> Array:
    """`x` [..., D] with mean 0 and variance 1 over D, then scaled and shifted [D].

    The mean of x (x - mean) is the variance: the value of a layer norm.
    """
    wide = x.astype(jnp.float32)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(wide * centred, axis=-1, keepdims=True)
    y = centred * jax.lax.rsqrt(variance + EPSILON) * scale + bias
    return y.astype(x.dtype)


class PrimerNorm(nn.Module):
    """`primer_norm` with weights of its own."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., D] of x [..., D]."""
        shape = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape)
        return primer_norm(x, scale, self.param("bias", nn.initializers.zeros, shape))


class SharedAttention(nn.Module):
    """Attention whose queries are made from its keys by one matrix more."""

    config: Config

    @nn.compact
    def __call__(self, x: Array, mask: Array, positions: Array) -> Array:
        """Attention [B, S, D] of x [B, S, D] over itself."""
        config = self.config
        heads, width = config.heads, config.head_width
        dense = partial(nn.DenseGeneral, use_bias=False, dtype=DTYPES[config.dtype])
        k = CausalConv(name="k_conv")(dense((heads, width), name="k")(x))
        q = dense((heads, width), axis=(-2, -1), name="q")(k)
        v = CausalConv(name="v_conv")(dense((heads, width), name="v")(x))
        table = rotary_angles(positions, width, config.rotary_base)
        q, k = rotate(q, table).astype(v.dtype), rotate(k, table).astype(v.dtype)
        heard = attend(q, k, v, mask)
        return dense(config.d_model, axis=(-2, -1), name="out")(heard)


class PrimerBlock(nn.Module):
    """Attention behind a norm, an MLP before one, both added to the residual stream."""

    config: Config

    @nn.compact
    def __call__(self, x: Array, mask: Array, positions: Array) -> Array:
        """The residual stream [B, S, D] after this layer."""
        heard = PrimerNorm(name="attention_norm")(x)
        attention = SharedAttention(self.config, name="attention")
        x = x + attention(heard, mask, positions)
        return x + PrimerNorm(name="mlp_norm")(mlp_of(self.config)(x))


BLOCKS: dict[str, Callable[[Config], nn.Module]] = {
    "gpt": Block,
    "primer_ez": partial(Block, after_projection=CausalConv),
    "primer": PrimerBlock,
}
"""The layer of each kind of model; the plain one for comparison."""


def model_of(kind: str, config: Config) -> Decoder:
    """The decoder of one of BLOCKS; "gpt" has the activation of the configuration."""
    return Decoder(config, choose(kind, BLOCKS, "kind of model"))


def text_batches(config: Config, seed: int) -> Iterator[dict[str, Any]]:
    """Windows of the zoo's text."""
    return batches(load_text(), config.batch, config.sequence, seed)


def train(seed: int, steps: int) -> Curve:
    """The loss of each step of the small Primer-EZ on bytes of text."""
    model = model_of("primer_ez", TINY)
    state = jax.jit(partial(start, model))(jax.random.key(seed))
    return run(train_step(model), state, text_batches(TINY, seed), steps)


# -- targets and schedules ---------------------------------------------------------


def _train_target(kind: str, config: Config) -> tuple[Any, tuple[Any, ...]]:
    model = model_of(kind, config)
    return train_step(model), shapes(model)


def _small(kind: str) -> tuple[Any, tuple[Any, ...]]:
    model = model_of(kind, TINY)
    state = jax.jit(partial(start, model))(jax.random.key(0))
    return train_step(model), (state, next(text_batches(TINY, seed=0)))


def tiny():
    """A Primer-EZ of 0.1 million parameters and bytes of real text, as arrays."""
    return _small("primer_ez")


def tiny_primer():
    """A Primer of 0.1 million parameters and bytes of real text, as arrays."""
    return _small("primer")


def tiny_forward():
    """The scores of what follows each byte of a text, by a Primer-EZ."""
    _, (state, batch) = tiny()
    model = model_of("primer_ez", TINY)
    return partial(scores, model), (state.params, batch["inputs"][:1])


inference = {"tiny": tiny_forward}

targets = sized(partial(_train_target, "primer"), SIZES) | sized(
    partial(_train_target, "primer_ez"),
    {name.replace("primer", "primer_ez"): size for name, size in SIZES.items()},
)

DP = mw.data_parallel("data", "batch.**")
MEGATRON = mw.megatron("model", vocabulary=False)
Z3 = mw.zero(3, "data")

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+megatron": [DP, MEGATRON],
    "dp+megatron+z3": [DP, MEGATRON, Z3],
}


_CODE = "google-research/primer, comments of gin/models"

workload = Workload(
    name="primer",
    title="Primer, Primer-EZ",
    paper="So et al., Primer: Searching for Efficient Transformers for Language "
    "Modeling, NeurIPS 2021",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=200,
    schedules=schedules,
    best="dp+megatron+z3",
    published=(
        published_parameters("Primer medium", 110e6, targets["primer_medium"], _CODE),
        published_parameters(
            "Primer-EZ medium", 110e6, targets["primer_ez_medium"], _CODE
        ),
        published_parameters("Primer large", 537e6, targets["primer_large"], _CODE),
    ),
)

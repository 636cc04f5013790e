"""A decoder over text, patches of images and frames of audio, in any order.

The shape of Gemini Team, Google, "Gemini: A Family of Highly Capable Multimodal Models",
2023, section 2: a decoder-only transformer with multi-query attention (Shazeer, 2019) and
32k positions, into which images and audio come interleaved with text. The report prints
the parameters of Nano-1 and Nano-2 and no other size. Assumed here:

- Layers, widths and heads, chosen so that the printed parameters come out.
- Blocks (RMSNorm, gated GELU, rotary positions) and a tied vocabulary of 256,000: those of
  Gemma Team, "Gemma: Open Models Based on Gemini Research and Technology", 2024.
- Patches of 14 pixels and 128 bands for each frame, each through one linear layer. The
  report names the encoders that inspired theirs, and for audio the features of the
  Universal Speech Model (Zhang et al., 2023); neither is printed.
- Half of the positions are patches, a quarter frames. The names that end in `_32k` have
  the report's whole context; the others 4,096 positions, since the report does not say
  how long most training sequences are.
- Only text is predicted; Gemini also outputs images, as discrete tokens.

`kinds` [B, S] has the kind of each position. Patches and frames come in their own
arrays and take the places of their kind in order, so that shapes are the same however the
kinds are interleaved.

Letters: B batch, S sequence, D d_model, V vocab, N patches, X numbers of a patch, F
frames, C bands.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

import meshwright as mw
from zoo import decoder
from zoo.captions import AUDIO, IMAGE, NO_TARGET, Task, made_batches
from zoo.decoder import DTYPES, Decoder
from zoo.training import State, TrainStep, new_state, train_step_of
from zoo.workload import (
    Curve,
    Published,
    Workload,
    check_numbers,
    published_parameters,
    sized,
)

Batch = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Config:
    """A decoder, and the patches and frames of its sequences.

    patches: N, of all images of a sequence, `patch` pixels wide.
    frames: F, of all sounds of a sequence, of `bands` numbers.
    """

    decoder: decoder.Config
    patch: int
    patches: int
    bands: int
    frames: int

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.patches + self.frames >= self.decoder.sequence:
            raise ValueError(
                f"{self.patches} patches and {self.frames} frames leave no text in a "
                f"sequence of {self.decoder.sequence}"
            )


MULTI_QUERY = partial(decoder.Config, kv_heads=1, activation="gelu", tied=True)


def _nano(
    layers: int, d_model: int, heads: int, d_ff: int, sequence: int, batch: int
) -> Config:
    text = MULTI_QUERY(
        layers, d_model, heads, d_ff, vocab=256_000, sequence=sequence, batch=batch,
        d_head=128, dtype="bfloat16", remat="full",
    )  # fmt: skip
    return Config(text, 14, sequence // 2, 128, sequence // 4)


NANO1, NANO2 = (24, 2048, 16, 7168), (32, 2560, 20, 8704)
"""Layers, d_model, heads, d_ff."""

SIZES = {
    "nano1": _nano(*NANO1, sequence=4096, batch=512),
    "nano2": _nano(*NANO2, sequence=4096, batch=512),
    "nano1_32k": _nano(*NANO1, sequence=32_768, batch=64),
    "nano2_32k": _nano(*NANO2, sequence=32_768, batch=64),
}

TASK = Task()
TINY = Config(
    MULTI_QUERY(2, 64, 4, 192, 256, TASK.sequence, batch=32, rate=5e-3),
    TASK.patch, TASK.patches, TASK.bands, TASK.frames,
)  # fmt: skip


def in_order(features: Array, here: Array) -> Array:
    """[B, S, D]: at the n-th true place of `here` [B, S], the n-th feature [B, N, D].

    What stands elsewhere has no meaning; a place for which no feature is left is NaN.
    """
    number = jnp.maximum(jnp.cumsum(here, axis=1) - 1, 0)
    return jnp.take_along_axis(features, number[..., None], axis=1)


class Multimodal(nn.Module):
    """One stream of features from three kinds of positions, and a decoder over it."""

    config: Config

    def setup(self) -> None:
        config = self.config.decoder
        dense = partial(nn.Dense, config.d_model, dtype=DTYPES[config.dtype])
        self.decoder = Decoder(config)
        self.patch, self.frame = dense(), dense()

    def embed(self, batch: Batch) -> Array:
        """Features [B, S, D] of the positions, each made by the layer of its kind."""
        x = self.decoder.embed(batch["tokens"])
        seen = self.patch(batch["patches"]), self.frame(batch["frames"])
        for kind, features in zip((IMAGE, AUDIO), seen, strict=True):
            here = batch["kinds"] == kind
            x = jnp.where(here[..., None], in_order(features, here), x)
        return x

    def __call__(self, batch: Batch) -> Array:
        """Scores [B, S, V] of the token after each position."""
        return self.decoder.scores(self.decoder.through(self.embed(batch)))


# -- training ----------------------------------------------------------------------


def init(model: Multimodal, key: Array) -> Any:
    """Parameters drawn from `key`."""
    shapes = batch_shapes(model.config, batch=1)
    one = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return model.init(key, one)["params"]


def measure(model: Multimodal, params: Any, batch: Batch) -> tuple[Array, Array]:
    """Nats per token of text, and the share of examples without an error.

    An example in which each target has the best score, given those before it, is one whose
    caption `caption` generates exactly, and the reverse.
    """
    scores, targets = model.apply({"params": params}, batch), batch["targets"]
    told = targets != NO_TARGET
    nats = optax.softmax_cross_entropy_with_integer_labels(
        scores, jnp.maximum(targets, 0)
    )
    right = jnp.all((jnp.argmax(scores, axis=-1) == targets) | ~told, axis=1)
    return jnp.sum(nats * told) / jnp.sum(told), jnp.mean(right)


def loss(model: Multimodal, params: Any, batch: Batch) -> Array:
    """Mean cross-entropy, in nats a token of text."""
    return measure(model, params, batch)[0]


def start(model: Multimodal, key: Array) -> State:
    """The state before the first step."""
    return new_state(init(model, key), decoder.optimizer(model.config.decoder))


def train_step(model: Multimodal) -> TrainStep:
    """`step(state, batch)` of a model."""
    return train_step_of(partial(loss, model), decoder.optimizer(model.config.decoder))


def train(seed: int, steps: int) -> Curve:
    """The loss and the accuracy before each step, on newly generated documents."""
    model = Multimodal(TINY)
    state = jax.jit(partial(start, model))(jax.random.key(seed))
    step = train_step(model)

    @jax.jit
    def measured(state: State, batch: Batch) -> tuple[State, Array, Array]:
        right = measure(model, state.params, batch)[1]
        return *step(state, batch), right

    documents = made_batches(TASK, TINY.decoder.batch, seed)
    for _, batch in zip(range(steps), documents, strict=False):
        state, nats, right = measured(state, batch)
        yield {"loss": float(nats), "accuracy": float(right)}


def caption(model: Multimodal, params: Any, batch: Batch, first: int) -> Array:
    """Tokens [B, S - first] of the positions from `first` on, the best one after another.

    What `batch` has as tokens there is not read; its kinds there are text.
    """

    def one(position: Array, tokens: Array) -> Array:
        scores = model.apply({"params": params}, {**batch, "tokens": tokens})
        return tokens.at[:, position].set(jnp.argmax(scores[:, position - 1], axis=-1))

    tokens = jnp.asarray(batch["tokens"]).at[:, first:].set(0)
    return jax.lax.fori_loop(first, tokens.shape[1], one, tokens)[:, first:]


# -- targets and schedules ---------------------------------------------------------


def batch_shapes(config: Config, batch: int) -> dict[str, jax.ShapeDtypeStruct]:
    """A batch of `batch` sequences, as shapes."""
    whole = jax.ShapeDtypeStruct((batch, config.decoder.sequence), jnp.int32)
    patches = (batch, config.patches, config.patch**2 * 3)
    return {
        "tokens": whole,
        "targets": whole,
        "kinds": whole,
        "patches": jax.ShapeDtypeStruct(patches, jnp.float32),
        "frames": jax.ShapeDtypeStruct(
            (batch, config.frames, config.bands), jnp.float32
        ),
    }


def tiny():
    """A model of 0.1 million parameters and made documents, as arrays."""
    model = Multimodal(TINY)
    state = jax.jit(partial(start, model))(jax.random.key(0))
    return train_step(model), (state, next(made_batches(TASK, TINY.decoder.batch, 0)))


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    model = Multimodal(config)
    state = jax.eval_shape(partial(start, model), jax.random.key(0))
    return train_step(model), (state, batch_shapes(config, config.decoder.batch))


targets = sized(_train_target, SIZES)

DP = mw.data_parallel("data", "batch.**")
MEGATRON = mw.megatron("model", vocabulary=False)
VOCAB = mw.shard({"state.params.decoder.embedding.embedding": 0}, axis="model")

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    # Queries are cut by heads; the one head of keys and values stays on every device.
    "dp+megatron": [DP, MEGATRON],
    "dp+megatron+z3": [DP, MEGATRON, mw.zero(3, "data")],
    "dp+megatron+vocab+z3": [DP, MEGATRON, VOCAB, mw.zero(3, "data")],
}


def _published(name: str, billions: float) -> Published:
    return published_parameters(
        name,
        billions * 1e9,
        targets[name],
        "Gemini Team, 2023, section 2; the layout is assumed",
    )


workload = Workload(
    name="multimodal",
    title="text, images and audio in one decoder",
    paper="Gemini Team, Gemini: A Family of Highly Capable Multimodal Models, 2023",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=250,
    schedules=schedules,
    best="dp+megatron+z3",
    published=(_published("nano1", 1.8), _published("nano2", 3.25)),
)

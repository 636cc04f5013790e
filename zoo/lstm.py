"""LSTM language models: those of Zaremba et al., and of Jozefowicz et al., on bytes.

W. Zaremba, I. Sutskever, O. Vinyals, "Recurrent Neural Network Regularization", 2014: two
layers, dropout only between layers, never between time steps, plain SGD with a bound on the
gradient's norm. R. Jozefowicz, O. Vinyals, M. Schuster, N. Shazeer, Y. Wu, "Exploring the
Limits of Language Modeling", 2016: a vocabulary of 793,471 words, and a projection of each
layer's output to fewer features.

Assumed here: the softmax is whole, where Jozefowicz et al. train with sampled words; a
window of text starts with a zero state, while both papers carry it over; the
forget gate's bias starts at 1 (Jozefowicz et al., ICML 2015). So that meshes divide
them, the 20 windows of a Penn Treebank batch become 32, and the 793,471 words 793,472.

A time step reads the whole output of the step before. So along an axis that cuts units,
each step needs a gather, or an all-reduce if there is a projection. Inputs from the layer
below do not depend on the recurrence, so they are one product for all steps.

Letters: B batch, S sequence, D features from below, H units, P outputs (H, if there is
no projection), V vocab. The gates are a dim of 4, in the order input, forget, output,
candidate.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

import meshwright as mw
from zoo.layers import cross_entropy
from zoo.text import batches, load_text
from zoo.training import State, new_state, run, train_step_of
from zoo.workload import (
    Curve,
    Workload,
    check_numbers,
    choose,
    published_parameters,
    sized,
)

OPTIMIZERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "sgd": optax.sgd,
    "adagrad": optax.adagrad,
    "adam": optax.adam,
}

FORGET_BIAS = 1.0


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model and of its batch, and how it is trained.

    projection: features of a layer's output, None for as many as units.
    dropout: share of values that are dropped between layers, before and after them.
    clip: the largest norm of a gradient.
    """

    layers: int
    features: int
    units: int
    projection: int | None
    vocab: int
    sequence: int
    batch: int
    dropout: float
    optimizer: str
    rate: float
    clip: float

    def __post_init__(self) -> None:
        check_numbers(self)
        choose(self.optimizer, OPTIMIZERS, "optimizer")
        if not 0 <= self.dropout < 1:
            raise ValueError(
                f"dropout is a share of values, at least 0 and less than 1, "
                f"not {self.dropout}"
            )
        if self.projection is not None and self.projection > self.units:
            raise ValueError(
                f"a projection has fewer features than there are units ({self.units}), "
                f"not {self.projection}; None for no projection"
            )


PTB = partial(
    Config, 2, projection=None, vocab=10_000, sequence=35, batch=32, optimizer="sgd",
    rate=1.0,
)  # fmt: skip
BILLION_WORDS = partial(
    Config, vocab=793_472, sequence=20, batch=128, optimizer="adagrad", rate=0.2,
    clip=1.0,
)  # fmt: skip

SIZES = {
    "ptb_medium": PTB(features=650, units=650, dropout=0.5, clip=5.0),
    "ptb_large": PTB(features=1500, units=1500, dropout=0.65, clip=10.0),
    "lstm_2048_512": BILLION_WORDS(1, 512, 2048, 512, dropout=0.1),
    "big_lstm": BILLION_WORDS(2, 1024, 8192, 1024, dropout=0.25),
}
TINY = Config(
    2, 64, 128, 64, 256, sequence=48, batch=32, dropout=0.1, optimizer="adam",
    rate=5e-3, clip=1.0,
)  # fmt: skip


def cell(h: Array, c: Array, below: Array, recurrent: Array) -> tuple[Array, Array]:
    """Output and memory [B, H] after a step (Hochreiter and Schmidhuber, 1997).

    h [B, P]: the output before it; c [B, H]: the memory before it; below [B, 4, H]:
    what each gate hears from the layer below; recurrent [P, 4, H].
    """
    gates = below + jnp.einsum("bp,pgh->bgh", h, recurrent)
    write, keep, read = (jax.nn.sigmoid(gates[:, i]) for i in range(3))
    c = keep * c + write * jnp.tanh(gates[:, 3])
    return read * jnp.tanh(c), c


def _gate_bias(key: Array, shape: tuple[int, ...]) -> Array:
    del key  # the same for all seeds
    return jnp.zeros(shape).at[1].set(FORGET_BIAS)


class Layer(nn.Module):
    """One LSTM over time, from an empty memory."""

    units: int
    projection: int | None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, S, P] of x [B, S, D]."""
        units, outputs = self.units, self.projection or self.units
        init = nn.initializers.lecun_normal(in_axis=0, out_axis=(1, 2))
        kernel = self.param("input", init, (x.shape[-1], 4, units))
        recurrent = self.param("recurrent", init, (outputs, 4, units))
        bias = self.param("bias", _gate_bias, (4, units))
        below = jnp.einsum("bsd,dgh->sbgh", x, kernel) + bias
        narrow = None
        if self.projection is not None:
            init = nn.initializers.lecun_normal()
            narrow = self.param("projection", init, (units, outputs))

        def step(carry: tuple[Array, Array], below: Array) -> Any:
            h, c = cell(*carry, below, recurrent)
            h = h if narrow is None else h @ narrow
            return (h, c), h

        start = (jnp.zeros((len(x), outputs)), jnp.zeros((len(x), units)))
        return jax.lax.scan(step, start, below)[1].swapaxes(0, 1)


class LanguageModel(nn.Module):
    """Embedding, layers of LSTM, and a softmax of its own over the vocabulary."""

    config: Config

    @nn.compact
    def __call__(self, inputs: Array, *, train: bool = False) -> Array:
        """Scores [B, S, V] of the token after each of `inputs` [B, S]."""
        config = self.config
        drop = partial(nn.Dropout, config.dropout, deterministic=not train)
        x = drop()(nn.Embed(config.vocab, config.features, name="embedding")(inputs))
        for i in range(config.layers):
            x = Layer(config.units, config.projection, name=f"layer_{i}")(x)
            x = drop()(x)
        return nn.Dense(config.vocab, name="softmax")(x)


def loss(config: Config, params: dict, batch: dict[str, Array]) -> Array:
    """Mean cross-entropy, in nats a token."""
    scores = LanguageModel(config).apply(
        {"params": params}, batch["inputs"], train=True, rngs={"dropout": batch["key"]}
    )
    return cross_entropy(scores, batch["targets"])


def init(config: Config, key: Array) -> dict:
    """Parameters drawn from `key`."""
    return LanguageModel(config).init(key, jnp.zeros((1, 1), jnp.int32))["params"]


def optimizer(config: Config) -> optax.GradientTransformation:
    """What the paper of this size trains with."""
    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        OPTIMIZERS[config.optimizer](config.rate),
    )


def start(config: Config, key: Array) -> State:
    """The state before the first step."""
    return new_state(init(config, key), optimizer(config))


def made_batches(config: Config, seed: int) -> Iterator[dict[str, Any]]:
    """Windows of the zoo's text, each batch with a key for its dropout."""
    key = jax.random.key(seed)
    windows = batches(load_text(), config.batch, config.sequence, seed)
    for i, batch in enumerate(windows):
        yield {**batch, "key": jax.random.fold_in(key, i)}


def train(seed: int, steps: int) -> Curve:
    """The loss of each step on bytes of text."""
    step = train_step_of(partial(loss, TINY), optimizer(TINY))
    state = jax.jit(partial(start, TINY))(jax.random.key(seed))
    return run(step, state, made_batches(TINY, seed), steps)


# -- targets and schedules ---------------------------------------------------------


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    state = jax.eval_shape(partial(start, config), jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((config.batch, config.sequence), jnp.int32)
    key = jax.eval_shape(jax.random.key, 0)
    batch = {"inputs": tokens, "targets": tokens, "key": key}
    return train_step_of(partial(loss, config), optimizer(config)), (state, batch)


def tiny():
    """Two layers of 128 units with a projection, on real text, as arrays."""
    step, _ = _train_target(TINY)
    state = jax.jit(partial(start, TINY))(jax.random.key(0))
    return step, (state, next(made_batches(TINY, seed=0)))


def tiny_forward():
    """The scores of what follows each byte of a text."""
    _, (state, batch) = tiny()

    def forward(params: dict, inputs: Array) -> Array:
        return LanguageModel(TINY).apply({"params": params}, inputs)

    return forward, (state.params, batch["inputs"][:1])


inference = {"tiny": tiny_forward}

targets = sized(_train_target, SIZES)

DP = mw.data_parallel("data", "batch.**")
UNITS = mw.shard(
    {
        "state.params.**.input": 2,
        "state.params.**.recurrent": 2,
        "state.params.**.bias": lambda path, value: (
            1 if len(value.shape) == 2 else None
        ),
    },
    axis="model",
)
VOCAB = mw.shard(
    {"state.params.embedding.embedding": 0, "state.params.softmax.kernel": 1},
    axis="model",
)

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+units": [DP, UNITS],
    "dp+vocab": [DP, VOCAB],
    "dp+units+vocab": [DP, UNITS, VOCAB],
    "dp+units+vocab+z3": [DP, UNITS, VOCAB, mw.zero(3, "data")],
}


_MERITY = "Merity et al., Pointer Sentinel Mixture Models, ICLR 2017, table 1"
_LIMITS = "Jozefowicz et al., 2016, table 1"

workload = Workload(
    name="lstm",
    title="LSTM language model",
    paper="Zaremba, Sutskever, Vinyals, Recurrent Neural Network Regularization, 2014",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=150,
    schedules=schedules,
    best="dp+units+vocab",
    published=(
        published_parameters("LSTM medium", 20e6, targets["ptb_medium"], _MERITY),
        published_parameters("LSTM large", 66e6, targets["ptb_large"], _MERITY),
        published_parameters(
            "LSTM-2048-512", 0.83e9, targets["lstm_2048_512"], _LIMITS
        ),
        published_parameters("BIG LSTM", 1.8e9, targets["big_lstm"], _LIMITS),
    ),
)

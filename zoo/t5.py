"""T5: one encoder-decoder for every task of text, all of them text to text.

Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li, Liu, "Exploring the Limits of
Transfer Learning with a Unified Text-to-Text Transformer", JMLR 2020. What sets it apart
from other transformers: positions are biases of the scores, one for each bucket of
distances and head, shared by all layers; scores are not divided by the root of d_head,
queries start smaller instead; norms have a scale only; no layer has biases; the embedding
serves inputs, targets and scores. T5 1.1 (of the authors' repository; Shazeer, "GLU
Variants Improve Transformer", 2020) gates its MLPs and has a matrix of its own for the
scores. Trained by Adafactor (Shazeer and Stern, ICML 2018) on `zoo/span_corruption.py`.

Dropout is 0 unless a configuration says more, as in T5 1.1's pre-training. The rate of
learning is constant here, in the paper it falls as the root of the step after 10,000 steps.

Letters: B batch, S inputs, T targets, D d_model, N heads, H d_head, V vocab, L layers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

import meshwright as mw
from zoo.attention import Cache, Stack
from zoo.beam import Decoding, beam, greedy
from zoo.layers import EPSILON, cross_entropy
from zoo.once import once
from zoo.span_corruption import END, PAD, VOCAB, batches
from zoo.t5_blocks import (
    Config,
    DecoderBlock,
    EncoderBlock,
    Positions,
    dropout,
    hidden,
)
from zoo.text import load_text
from zoo.training import State, TrainStep, new_state, run, train_step_of
from zoo.workload import Curve, Workload, published_parameters, sized

_V1_1 = partial(Config, gated=True, tied=False)
SIZES = {
    "small": Config(6, 512, 8, 64, 2048),
    "base": Config(12, 768, 12, 64, 3072),
    "large": Config(24, 1024, 16, 64, 4096),
    "t5_3b": Config(24, 1024, 32, 128, 16_384),
    "t5_11b": Config(24, 1024, 128, 128, 65_536),
    "v1_1_base": _V1_1(12, 768, 12, 64, 2048),
    "v1_1_large": _V1_1(24, 1024, 16, 64, 2816),
    "v1_1_xl": _V1_1(24, 2048, 32, 64, 5120),
    "v1_1_xxl": _V1_1(24, 4096, 64, 64, 10_240),
}
TINY = Config(2, 128, 4, 32, 256, vocab=VOCAB, inputs=64, targets=14, batch=32)


# -- model -------------------------------------------------------------------------


class T5(nn.Module):
    """Embedding, encoder, decoder, scores."""

    config: Config

    def setup(self) -> None:
        config = self.config
        one = nn.initializers.normal(1.0)
        self.embedding = nn.Embed(config.vocab, config.d_model, embedding_init=one)
        self.encoder_positions = Positions(config, both=True)
        self.encoder = Stack(partial(EncoderBlock, config), config.layers, config.scan)
        self.encoder_norm = nn.RMSNorm(epsilon=EPSILON)
        self.decoder_positions = Positions(config, both=False)
        blocks = [
            DecoderBlock(config) for _ in range(1 if config.scan else config.layers)
        ]
        self.decoder = blocks[0] if config.scan else blocks
        self.decoder_norm = nn.RMSNorm(epsilon=EPSILON)
        self.dropout = dropout(config)
        if not config.tied:
            self.head = nn.Dense(config.vocab, use_bias=False, dtype=jnp.float32)

    def __call__(self, inputs: Array, decoder_inputs: Array) -> Array:
        """Scores [B, T, V] of the targets after decoder inputs [B, T]."""
        memory, unseen = self.encode(inputs), hidden(inputs)
        places = jnp.arange(decoder_inputs.shape[1])
        bias = self.decoder_positions(places, len(places))

        def one(block: DecoderBlock, x: Array, _: None) -> tuple[Array, None]:
            return block(x, memory, (bias, unseen)), None

        x = self.dropout(self.embedding(decoder_inputs))
        x = self._over_layers(one)(self.decoder, x, None)
        return self.scores(x[0])

    def encode(self, inputs: Array) -> Array:
        """What the decoder reads of inputs [B, S]: [B, S, D]."""
        places = jnp.arange(inputs.shape[1])
        bias = self.encoder_positions(places, len(places)) + hidden(inputs)
        x = self.encoder(self.dropout(self.embedding(inputs)), bias)
        return self.dropout(self.encoder_norm(x))

    def scores(self, x: Array) -> Array:
        """Scores [..., V] of the decoder's output [..., D]."""
        x = self.dropout(self.decoder_norm(x))
        if not self.config.tied:
            return self.head(x)
        return self.embedding.attend(x * self.config.d_model**-0.5)

    def begin(self, inputs: Array, length: int) -> "Reading":
        """What a decoder needs before its first token; room for `length` tokens."""
        memory = self.encode(inputs)

        def one(block: DecoderBlock, carry: None, _: None) -> tuple[None, Cache]:
            return carry, block.cross.keys(memory)

        _, keys = self._over_layers(one)(self.decoder, None, None)
        room = jnp.zeros((*keys.k.shape[:2], length, *keys.k.shape[3:]))
        return Reading(Cache(room, room), keys, hidden(inputs)[None])

    def next(
        self, tokens: Array, position: Array, reading: "Reading"
    ) -> tuple[Array, "Reading"]:
        """Scores [B, V] after tokens [B] at `position`, and what was read with them."""
        x, length = self.embedding(tokens[:, None]), reading.written.k.shape[2]
        biases = self.decoder_positions(position[None], length), reading.unseen[0]

        def one(block: DecoderBlock, x: Array, caches: Any) -> tuple[Array, Cache]:
            return block.step(x, position, caches, biases)

        x, written = self._over_layers(one)(
            self.decoder, x, (reading.written, reading.memory)
        )
        return self.scores(x[:, 0]), reading._replace(written=written)

    def _over_layers(self, one: Callable[..., Any]) -> Callable[..., Any]:
        if not self.config.scan:
            return partial(_unrolled, one)
        return nn.scan(
            one,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            length=self.config.layers,
        )


def _unrolled(
    one: Callable[..., Any], blocks: Sequence[nn.Module], carry: Any, xs: Any
) -> tuple[Any, Any]:
    """What `lax.scan` returns, with a block of its own for each layer."""
    found: list[Any] = []
    for layer, block in enumerate(blocks):
        carry, y = one(block, carry, jax.tree.map(lambda x, i=layer: x[i], xs))
        found.append(y)
    return carry, jax.tree.map(lambda *ys: jnp.stack(ys), *found)


class Reading(NamedTuple):
    """Keys and values [L, B, ., N, H] of the text so far and of the inputs.

    unseen: biases [1, B, 1, 1, S] that hide the padding of the inputs.
    """

    written: Cache
    memory: Cache
    unseen: Array


def decode(
    config: Config, how: Decoding, params: Any, inputs: Array, *, method: Any = greedy
) -> Any:
    """What `greedy`, or another `method` of `zoo.beam`, makes of inputs [B, S]."""
    model, variables = T5(config), {"params": params}
    next_fn = partial(model.apply, variables, method=T5.next)
    reading = model.apply(variables, inputs, how.length, method=T5.begin)
    return method(next_fn, reading, len(inputs), replace(how, batch_dim=1))


def decode_anew(
    config: Config, how: Decoding, params: Any, inputs: Array, *, method: Any = greedy
) -> Any:
    """The same without caches: the whole model on all of the text for each token."""
    model = T5(config)

    def next_fn(tokens: Array, position: Array, state: Any) -> tuple[Array, Any]:
        inputs, text = state
        text = text.at[:, position].set(tokens)
        scores = model.apply({"params": params}, inputs, text)
        return jnp.take(scores, position, axis=1), (inputs, text)

    text = jnp.zeros((len(inputs), how.length), inputs.dtype)
    return method(next_fn, (inputs, text), len(inputs), how)


# -- training ----------------------------------------------------------------------


def loss(config: Config, params: Any, batch: Mapping[str, Array]) -> Array:
    """Mean cross-entropy, in nats a token; examples fill their arrays."""
    arguments = batch["inputs"], batch["decoder_inputs"]
    scores = T5(config).apply({"params": params}, *arguments)
    return cross_entropy(scores, batch["targets"])


def optimizer(config: Config) -> optax.GradientTransformation:
    """Adafactor, which keeps rows and columns of each head's matrices too.

    Optax alone keeps all of a matrix with a side below 128, so of heads 64 wide.
    """
    return optax.adafactor(config.rate, min_dim_size_to_factor=32)


def start(config: Config, key: Array) -> State:
    """Parameters drawn from `key`, and Adafactor at rest."""
    tokens = jnp.zeros((1, 1), jnp.int32)
    params = T5(config).init(key, tokens, tokens)["params"]
    return new_state(params, optimizer(config))


def train_step(config: Config) -> TrainStep:
    """`step(state, batch)` of a model."""
    return train_step_of(partial(loss, config), optimizer(config))


def train(seed: int, steps: int) -> Curve:
    """The loss of each step on corrupted text."""
    state = once(partial(start, TINY))(jax.random.key(seed))
    text = batches(load_text(), TINY.batch, TINY.inputs, seed)
    return run(train_step(TINY), state, text, steps)


# -- targets and schedules ---------------------------------------------------------


def train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    state = jax.eval_shape(partial(start, config), jax.random.key(0))
    lengths = {"inputs": config.inputs} | dict.fromkeys(
        ("decoder_inputs", "targets"), config.targets
    )
    batch = {
        name: jax.ShapeDtypeStruct((config.batch, length), jnp.int32)
        for name, length in lengths.items()
    }
    return train_step(config), (state, batch)


def tiny():
    """Two layers of each kind on corrupted bytes of real text, as arrays."""
    state = once(partial(start, TINY))(jax.random.key(0))
    batch = next(batches(load_text(), TINY.batch, TINY.inputs, seed=0))
    return train_step(TINY), (state, batch)


def tiny_beam():
    """A beam of four over the same inputs."""
    _, (state, batch) = tiny()
    how = Decoding(TINY.targets, width=4, end=END, pad=PAD)
    decoder = partial(decode, TINY, how, method=beam)
    return decoder, (state.params, batch["inputs"])


def tiny_forward():
    """The scores of one corrupted text, encoder and decoder."""
    _, (state, batch) = tiny()

    def forward(params: Any, inputs: Array, decoder_inputs: Array) -> Array:
        return T5(TINY).apply({"params": params}, inputs, decoder_inputs)

    return forward, (state.params, batch["inputs"][:1], batch["decoder_inputs"][:1])


inference = {"tiny": tiny_forward}

targets = sized(train_target, SIZES)

DP = mw.data_parallel("data", "batch.**")
MP = mw.megatron("model", vocabulary=False)
schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+mp": [DP, MP],
    "dp+mp+z3": [DP, MP, mw.zero(3, "data")],
}


_RAFFEL = "Raffel et al., 2020, section 3.7"

workload = Workload(
    name="t5",
    title="T5",
    paper="Raffel et al., Exploring the Limits of Transfer Learning with a Unified "
    "Text-to-Text Transformer, JMLR 2020",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=100,
    schedules=schedules,
    best="dp+mp",
    published=(
        published_parameters("T5 Small", 60e6, targets["small"], _RAFFEL),
        published_parameters("T5 Base", 220e6, targets["base"], _RAFFEL),
        published_parameters(
            "T5 Large",
            770e6,
            targets["large"],
            f"{_RAFFEL}; with a matrix of its own for the scores it has 770.6 million",
            within=0.05,
        ),
        published_parameters("T5 3B", 2.8e9, targets["t5_3b"], _RAFFEL),
        published_parameters(
            "T5 11B", 11e9, targets["t5_11b"], f"{_RAFFEL}, in two digits", within=0.03
        ),
        published_parameters(
            "T5 1.1 XXL",
            11.1e9,
            targets["v1_1_xxl"],
            "size shown for its checkpoints on huggingface.co",
        ),
    ),
)

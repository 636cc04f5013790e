"""One decoder-only language model, from which the GPT and Llama families are cut.

Blocks of attention and an MLP, each behind a norm and added to the residual stream
(pre-norm: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).
What differs between families is a field of `Config`: the norm, the positions, gated or
plain MLPs, biases, tied embeddings, grouped-query attention. How the program is written
is a field too: blocks scanned or unrolled, and what a block keeps for its backward pass.

`Decoder(config)(tokens)` gives scores; `embed`, `through` and `scores` are its parts, for
programs that bring features of their own. A family with another block hands its module to
`Decoder(config, block)`.

Matrices are drawn with variance 1 / fan-in, where the papers have a constant deviation.

Letters: B batch, S sequence, D d_model, N heads, K key-value heads, H d_head, F d_ff,
V vocab.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from zoo.attention import ACTIVATIONS, CAUSAL, REMAT, Attention, Mlp, Stack, causal_mask
from zoo.layers import cross_entropy
from zoo.training import State, TrainStep, new_state, train_step_of
from zoo.workload import check_numbers, choose

EPSILON = 1e-5
"""Keeps a norm finite on zeros; the value of GPT-2 and Llama."""

NORMS: Mapping[str, Callable[..., nn.Module]] = {
    "layer": partial(nn.LayerNorm, epsilon=EPSILON),
    "rms": partial(nn.RMSNorm, epsilon=EPSILON),
}

POSITIONS = {"learned": None, "rotary": None}

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}

CLIP = 1.0
"""The largest norm of a gradient, in GPT-3 and Llama alike."""


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model and of its batch, and how its program is written.

    d_head: D / N if None.
    kv_heads: K, as many as heads if None.
    norm, positions, activation, dtype: names in NORMS, POSITIONS, ACTIVATIONS, DTYPES.
    rotary_base: of rotary positions.
    one_hot: tokens pick their rows of the embedding by a product, not by a gather.
    dtype: of computation; parameters and the loss are 32-bit floats.
    attention_block: queries that attend at a time, with scores that are never all there
        at once; all together if None.
    causal: a name in CAUSAL, how they do.
    scan: one traced block for all layers, or every layer for itself.
    remat: a name in REMAT, what a block keeps for its backward pass.
    rate: of AdamW.
    """

    layers: int
    d_model: int
    heads: int
    d_ff: int
    vocab: int
    sequence: int
    batch: int
    d_head: int | None = None
    kv_heads: int | None = None
    norm: str = "rms"
    positions: str = "rotary"
    rotary_base: float = 10_000.0
    activation: str = "silu"
    gated: bool = True
    bias: bool = False
    tied: bool = False
    one_hot: bool = False
    dtype: str = "float32"
    attention_block: int | None = None
    causal: str = "blocks"
    scan: bool = True
    remat: str = "none"
    rate: float = 3e-4

    def __post_init__(self) -> None:
        choose(self.norm, NORMS, "norm")
        choose(self.positions, POSITIONS, "kind of positions")
        choose(self.activation, ACTIVATIONS, "activation")
        choose(self.causal, CAUSAL, "causal attention")
        choose(self.dtype, DTYPES, "dtype")
        choose(self.remat, REMAT, "rematerialisation")
        check_numbers(self)
        if self.d_head is None and self.d_model % self.heads:
            raise ValueError(
                f"{self.heads} heads do not divide d_model {self.d_model}; "
                "give heads that do, or d_head"
            )
        if self.heads % self.num_kv_heads:
            raise ValueError(
                f"{self.num_kv_heads} key-value heads do not divide {self.heads} heads: "
                "each serves as many of them"
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(
                f"rotary positions turn pairs of features; d_head {self.head_width} "
                "is odd"
            )

    @property
    def head_width(self) -> int:
        """H."""
        return self.d_head or self.d_model // self.heads

    @property
    def num_kv_heads(self) -> int:
        """K."""
        return self.kv_heads or self.heads


class Block(nn.Module):
    """Attention and an MLP, each behind a norm and added to the residual stream.

    after_projection: what `zoo.attention.Attention` applies to q, k and v.
    """

    config: Config
    after_projection: Callable[[], nn.Module] | None = None

    @nn.compact
    def __call__(self, x: Array, mask: Array, positions: Array) -> Array:
        """The residual stream [B, S, D] after this layer."""
        config, dtype = self.config, DTYPES[self.config.dtype]
        norm = partial(NORMS[config.norm], dtype=dtype)
        attention = Attention(
            config.heads,
            config.head_width,
            config.kv_heads,
            bias=config.bias,
            rotary=config.rotary_base if config.positions == "rotary" else None,
            block=config.attention_block,
            causal=config.causal,
            after_projection=self.after_projection,
            dtype=dtype,
            name="attention",
        )
        heard = norm(name="attention_norm")(x)
        x = x + attention(heard, mask, positions=positions)
        return x + mlp_of(config)(norm(name="mlp_norm")(x))


def mlp_of(config: Config) -> nn.Module:
    """The MLP of a block, named `mlp`."""
    return Mlp(
        config.d_ff,
        config.activation,
        config.gated,
        config.bias,
        DTYPES[config.dtype],
        name="mlp",
    )


class Decoder(nn.Module):
    """Embedding, blocks, a last norm, and scores over the vocabulary.

    block: the module of a layer, built from the configuration.
    """

    config: Config
    block: Callable[..., nn.Module] = Block

    def setup(self) -> None:
        config, dtype = self.config, DTYPES[self.config.dtype]
        small = nn.initializers.normal(config.d_model**-0.5)
        self.embedding = nn.Embed(
            config.vocab, config.d_model, embedding_init=small, dtype=dtype
        )
        if config.positions == "learned":
            self.position = nn.Embed(
                config.sequence, config.d_model, embedding_init=small, dtype=dtype
            )
        self.stack = Stack(
            partial(self.block, config), config.layers, config.scan, config.remat
        )
        self.norm = NORMS[config.norm](dtype=dtype)
        if not config.tied:
            self.head = nn.Dense(config.vocab, use_bias=False, dtype=dtype)

    def embed(self, tokens: Array) -> Array:
        """Features [B, S, D] of tokens [B, S], before any position."""
        if not self.config.one_hot:
            return self.embedding(tokens)
        dtype = DTYPES[self.config.dtype]
        chosen = jax.nn.one_hot(tokens, self.config.vocab, dtype=dtype)
        return chosen @ self.embedding.embedding.astype(dtype)

    def through(
        self, x: Array, mask: Array | None = None, positions: Array | None = None
    ) -> Array:
        """Features [B, S, D] after all blocks and the last norm.

        mask: true where a key is seen, broadcasts to [B, S, S]; causal if None.
        positions [S]: 0 to S - 1 if None.
        """
        sequence = x.shape[1]
        if self.config.positions == "learned" and sequence > self.config.sequence:
            raise ValueError(
                f"a sequence of {sequence} is longer than the {self.config.sequence} "
                "learned positions"
            )
        order = jnp.arange(sequence)
        mask = causal_mask(order, sequence) if mask is None else mask
        positions = order if positions is None else positions
        if self.config.positions == "learned":
            x = x + self.position(positions)
        return self.norm(self.stack(x, mask, positions))

    def scores(self, x: Array) -> Array:
        """Scores [B, S, V], 32-bit floats, of the token after each of x [B, S, D]."""
        y = self.embedding.attend(x) if self.config.tied else self.head(x)
        return y.astype(jnp.float32)

    def __call__(self, tokens: Array) -> Array:
        """Scores [B, S, V] of the token after each of `tokens` [B, S]."""
        return self.scores(self.through(self.embed(tokens)))


# -- training ----------------------------------------------------------------------


def init(model: nn.Module, key: Array) -> Any:
    """Parameters drawn from `key`."""
    return model.init(key, jnp.zeros((1, 1), jnp.int32))["params"]


def scores(model: nn.Module, params: Any, inputs: Array) -> Array:
    """Scores [B, S, V] of the token after each of `inputs` [B, S]."""
    return model.apply({"params": params}, inputs)


def loss(model: nn.Module, params: Any, batch: Mapping[str, Array]) -> Array:
    """Mean cross-entropy, in nats a token."""
    return cross_entropy(scores(model, params, batch["inputs"]), batch["targets"])


def optimizer(config: Config) -> optax.GradientTransformation:
    """AdamW as Brown et al. (2020) and Touvron et al. (2023) set it, gradients clipped.

    Their warm-up and cosine decay are left out: runs here are short.
    """
    adam = optax.adamw(config.rate, b1=0.9, b2=0.95, weight_decay=0.1)
    return optax.chain(optax.clip_by_global_norm(CLIP), adam)


def start(model: Decoder, key: Array) -> State:
    """The state before the first step."""
    return new_state(init(model, key), optimizer(model.config))


def train_step(model: Decoder) -> TrainStep:
    """`step(state, batch)` of a model."""
    return train_step_of(partial(loss, model), optimizer(model.config))


def shapes(model: Decoder) -> tuple[State, dict[str, jax.ShapeDtypeStruct]]:
    """The train step's arguments as shapes, which need no memory."""
    config = model.config
    state = jax.eval_shape(partial(start, model), jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((config.batch, config.sequence), jnp.int32)
    return state, {"inputs": tokens, "targets": tokens}

"""A GPT and its train step, in plain JAX: the T32 and T48 of PartIR, and a tiny one.

PartIR (Alabed et al., 2024) names its transformers by a few numbers: a Chinchilla-like
model with one extra normalisation, Adam, nine parameter tensors a block and a tied
embedding, and a Megatron schedule that cuts `qkv_einsum` on dim 1, `dense_up` on dim 2
and the attention output on dim 0. This file is the model which those numbers describe:

- attention with all heads in one weight `qkv` [3, N, D, H] and `out` [N, H, D];
- a gated MLP with both halves in one weight `up` [2, D, F], and `down` [F, D];
- three RMS norms, two with a bias: five small tensors. The third closes the block, so
  the last one stands where others have a final norm;
- rotary positions, which add no parameter.

Not stated there, assumed here: F = 2D (5.5 and 32.5 billion parameters result, as the
names 5B and 32B want), sequences of 2048, 32-bit floats.

Letters: B batch, S sequence, D d_model, N heads, H d_head, F d_ff, V vocab.
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array

import meshwright as mw
from zoo.layers import (
    causal_attention,
    cross_entropy,
    rms_norm,
    rotary_table,
    rotate,
)
from zoo.text import batches, load_text
from zoo.training import State, new_state, run, train_step_of
from zoo.workload import Curve, Published, Workload, check_numbers

OPTIMIZER = optax.adam(1e-3)

Weights = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model and of its batch."""

    layers: int
    d_model: int
    heads: int
    d_ff: int
    vocab: int
    sequence: int
    batch: int

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.d_model % self.heads:
            raise ValueError(
                f"{self.heads} heads do not divide d_model {self.d_model}; "
                "give heads that do"
            )
        d_head = self.d_model // self.heads
        if d_head % 2:
            raise ValueError(
                f"rotary positions turn pairs of features; d_head {d_head} is odd"
            )


T32 = Config(32, 4096, 32, 8192, 32_000, sequence=2048, batch=48)
T48 = Config(48, 8192, 64, 16384, 32_000, sequence=2048, batch=64)
TINY = Config(4, 128, 8, 256, 256, sequence=64, batch=16)


def init_block(key: Array, config: Config) -> Weights:
    """The nine tensors of a block; matrices with variance 1 / fan-in."""
    d, n, f = config.d_model, config.heads, config.d_ff
    h = d // n
    keys = jax.random.split(key, 4)
    return {
        "attention_scale": jnp.ones(d),
        "attention_bias": jnp.zeros(d),
        "qkv": jax.random.normal(keys[0], (3, n, d, h)) * d**-0.5,
        "out": jax.random.normal(keys[1], (n, h, d)) * d**-0.5,
        "mlp_scale": jnp.ones(d),
        "mlp_bias": jnp.zeros(d),
        "up": jax.random.normal(keys[2], (2, d, f)) * d**-0.5,
        "down": jax.random.normal(keys[3], (f, d)) * f**-0.5,
        "output_scale": jnp.ones(d),
    }


def init(config: Config, key: Array) -> State:
    """Parameters drawn from `key`, and Adam at rest."""
    first, *keys = jax.random.split(key, config.layers + 1)
    embedding = jax.random.normal(first, (config.vocab, config.d_model))
    params = {
        "embedding": embedding * config.d_model**-0.5,
        "blocks": [init_block(k, config) for k in keys],
    }
    return new_state(params, OPTIMIZER)


def attention(x: Array, weights: Weights, table: tuple[Array, Array]) -> Array:
    """Causal attention over x [B, S, D], positions by rotation."""
    qkv = jnp.einsum("bsd,cndh->cbsnh", x, weights["qkv"])
    q, k, v = qkv[0], qkv[1], qkv[2]
    heard = causal_attention(rotate(q, table), rotate(k, table), v)
    return jnp.einsum("bsnh,nhd->bsd", heard, weights["out"])


def mlp(x: Array, weights: Weights) -> Array:
    """The gated MLP of Shazeer (GEGLU, 2020) on x [B, S, D]."""
    both = jnp.einsum("bsd,cdf->cbsf", x, weights["up"])
    return (jax.nn.gelu(both[0]) * both[1]) @ weights["down"]


def block(x: Array, weights: Weights, table: tuple[Array, Array]) -> Array:
    """One layer on the residual stream x [B, S, D]."""
    heard = rms_norm(x, weights["attention_scale"], weights["attention_bias"])
    x = x + attention(heard, weights, table)
    x = x + mlp(rms_norm(x, weights["mlp_scale"], weights["mlp_bias"]), weights)
    return rms_norm(x, weights["output_scale"])


def logits(params: dict, inputs: Array) -> Array:
    """Scores [B, S, V] of the token after each of `inputs` [B, S]."""
    embedding = params["embedding"]
    d_model = embedding.shape[1]
    x = jnp.take(embedding, inputs, axis=0) * d_model**0.5
    table = rotary_table(inputs.shape[1], params["blocks"][0]["qkv"].shape[-1])
    for weights in params["blocks"]:
        x = block(x, weights, table)
    return x @ embedding.T


def loss(params: dict, batch: dict[str, Array]) -> Array:
    """Mean cross-entropy, in nats a token."""
    return cross_entropy(logits(params, batch["inputs"]), batch["targets"])


train_step = train_step_of(loss, OPTIMIZER)


def train(seed: int, steps: int) -> Curve:
    """The loss of each step of the small model on bytes of text."""
    state = jax.jit(partial(init, TINY))(jax.random.key(seed))
    text = batches(load_text(), TINY.batch, TINY.sequence, seed)
    return run(train_step, state, text, steps)


def model(**changes: int):
    """`(init, loss)` for a recipe of training: the tiny model, with changed sizes."""
    config = replace(TINY, **changes)
    return lambda key: init(config, key).params, loss


# -- targets: functions without arguments that return (function, its arguments) ----


def shapes(config: Config) -> tuple[State, dict[str, jax.ShapeDtypeStruct]]:
    """The train step's arguments as shapes, which need no memory."""
    state = jax.eval_shape(partial(init, config), jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((config.batch, config.sequence), jnp.int32)
    return state, {"inputs": tokens, "targets": tokens}


def t32():
    """PartIR's 5B transformer: 289 parameter tensors."""
    return train_step, shapes(T32)


def t48():
    """PartIR's 32B transformer."""
    return train_step, shapes(T48)


def tiny():
    """A model of 0.7 million parameters and bytes of real text, as arrays."""
    state = jax.jit(partial(init, TINY))(jax.random.key(0))
    batch = next(batches(load_text(), TINY.batch, TINY.sequence, seed=0))
    return train_step, (state, batch)


def tiny_forward():
    """The scores of what follows each byte of a text."""
    _, (state, batch) = tiny()
    return logits, (state.params, batch["inputs"][:1])


inference = {"tiny": tiny_forward}

# -- schedules: PartIR's, over mesh axes "batch" and "model" ------------------------

LARGE = ("embedding", "qkv", "out", "up", "down")
"""The tensors that ZeRO cuts: four a block, and the embedding."""

BP = mw.shard({"batch.*": 0}, axis="batch")
MP = mw.shard(
    {
        "state.params.**.qkv": 1,
        "state.params.**.out": 0,
        "state.params.**.up": 2,
    },
    axis="model",
)
Z2 = mw.shard(
    {"state.params.**": mw.REPLICATED}
    | {f"state.optimizer.**.{name}": mw.FIRST_DIVISIBLE for name in LARGE},
    axis="batch",
)
Z3 = mw.shard({f"state.**.{name}": mw.FIRST_DIVISIBLE for name in LARGE}, axis="batch")
EMB = mw.shard({"state.params.embedding": 1}, axis="model")

schedules = {
    "dp": [mw.data_parallel("batch", "batch.**")],
    "fsdp": [mw.data_parallel("batch", "batch.**"), mw.fsdp("batch")],
    "bp": [BP],
    "mp": [MP],
    "bp+mp": [BP, MP],
    "bp+mp+z2": [BP, MP, Z2],
    "bp+mp+z3": [BP, MP, Z3],
    "emb": [MP, EMB],  # the table's row is reported on top of an MP-sharded model
    "bp+mp+z3+emb": [BP, MP, Z3, EMB],
}

workload = Workload(
    name="gpt",
    title="PartIR's T32 and T48",
    paper="Alabed et al., PartIR: Composing SPMD Partitioning Strategies for Machine "
    "Learning, ASPLOS 2025",
    tiny=tiny,
    full=(t32, t48),
    train=train,
    steps=100,
    schedules=schedules,
    best="bp+mp+z3",
    mesh={"batch": 4, "model": 2},
    published=(
        Published(
            "T32",
            "parameter tensors",
            289,
            lambda: len(jax.tree.leaves(t32()[1][0].params)),
            "Alabed et al., 2025, in its table of collectives",
            within=0.0,
        ),
    ),
)

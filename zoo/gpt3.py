"""A GPT-3 block by block: the 24-layer transformer on which automap searched.

Sixteen parameter tensors a block, as Brown et al. (NeurIPS 2020) have them: q, k, v,
the attention output and both MLP layers each with a bias, two layer norms with scale
and bias. Two more: the tied token embedding and learned positions.

The sizes of `t24` are those printed in "Automatic Discovery of Composite SPMD
Partitioning Strategies in PartIR" (2022): batch 16, 24 heads of 96, d_model 1024. The
vocabulary, the sequence of 2048 and F = 4D are assumed.

Letters: B batch, S sequence, D d_model, N heads, H d_head, F d_ff, V vocab.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

import meshwright as mw
from zoo.gpt import OPTIMIZER, Weights
from zoo.layers import causal_attention, cross_entropy, layer_norm
from zoo.text import batches, load_text
from zoo.training import State, new_state, run, train_step_of
from zoo.workload import Curve, Published, Workload, check_numbers


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model and of its batch."""

    layers: int
    d_model: int
    heads: int
    d_head: int
    d_ff: int
    vocab: int
    sequence: int
    batch: int

    def __post_init__(self) -> None:
        check_numbers(self)


T24 = Config(24, 1024, 24, 96, 4096, vocab=51_200, sequence=2048, batch=16)
TINY = Config(2, 64, 8, 8, 256, vocab=256, sequence=64, batch=16)


def init_block(key: Array, config: Config) -> Weights:
    """The sixteen tensors of a block; matrices with deviation 0.02 as in GPT-2."""
    d, n, h, f = config.d_model, config.heads, config.d_head, config.d_ff
    matrices = {
        "q": (d, n, h),
        "k": (d, n, h),
        "v": (d, n, h),
        "out": (n, h, d),
        "up": (d, f),
        "down": (f, d),
    }
    keys = jax.random.split(key, len(matrices))
    weights = {
        name: 0.02 * jax.random.normal(k, shape)
        for k, (name, shape) in zip(keys, matrices.items(), strict=True)
    }
    biases = {
        "q": (n, h),
        "k": (n, h),
        "v": (n, h),
        "out": (d,),
        "up": (f,),
        "down": (d,),
    }
    weights |= {f"{name}_bias": jnp.zeros(shape) for name, shape in biases.items()}
    for norm in ("attention", "mlp"):
        weights |= {f"{norm}_scale": jnp.ones(d), f"{norm}_shift": jnp.zeros(d)}
    return weights


def init(config: Config, key: Array) -> State:
    """Parameters drawn from `key`, and Adam at rest."""
    token, position, *keys = jax.random.split(key, config.layers + 2)
    d = config.d_model
    params = {
        "embedding": 0.02 * jax.random.normal(token, (config.vocab, d)),
        "positions": 0.02 * jax.random.normal(position, (config.sequence, d)),
        "blocks": [init_block(k, config) for k in keys],
    }
    return new_state(params, OPTIMIZER)


def block(x: Array, w: Weights) -> Array:
    """One layer on the residual stream x [B, S, D]."""
    y = layer_norm(x, w["attention_scale"], w["attention_shift"])
    q, k, v = (
        jnp.einsum("bsd,dnh->bsnh", y, w[name]) + w[f"{name}_bias"] for name in "qkv"
    )
    heard = causal_attention(q, k, v)
    x = x + jnp.einsum("bsnh,nhd->bsd", heard, w["out"]) + w["out_bias"]
    y = layer_norm(x, w["mlp_scale"], w["mlp_shift"])
    return x + jax.nn.gelu(y @ w["up"] + w["up_bias"]) @ w["down"] + w["down_bias"]


def loss(params: dict, batch: dict[str, Array]) -> Array:
    """Mean cross-entropy, in nats a token."""
    sequence, known = batch["inputs"].shape[1], len(params["positions"])
    if sequence != known:
        raise ValueError(
            f"a sequence of {sequence} does not fit the {known} learned positions"
        )
    x = jnp.take(params["embedding"], batch["inputs"], axis=0) + params["positions"]
    for weights in params["blocks"]:
        x = block(x, weights)
    return cross_entropy(x @ params["embedding"].T, batch["targets"])


train_step = train_step_of(loss, OPTIMIZER)


def train(seed: int, steps: int) -> Curve:
    """The loss of each step of the small model on bytes of text."""
    state = jax.jit(partial(init, TINY))(jax.random.key(seed))
    text = batches(load_text(), TINY.batch, TINY.sequence, seed)
    return run(train_step, state, text, steps)


def t24():
    """The train step of automap's 24-layer transformer: 386 parameter tensors."""
    state = jax.eval_shape(partial(init, T24), jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((T24.batch, T24.sequence), jnp.int32)
    return train_step, (state, {"inputs": tokens, "targets": tokens})


def tiny():
    """A model of 0.1 million parameters and bytes of real text, as arrays."""
    state = jax.jit(partial(init, TINY))(jax.random.key(0))
    batch = next(batches(load_text(), TINY.batch, TINY.sequence, seed=0))
    return train_step, (state, batch)


BP = mw.shard({"batch.*": 0}, axis="batch")
MP = mw.shard(
    {f"state.params.**.{name}": 1 for name in ("q", "k", "v", "up")}, axis="model"
)
Z3 = mw.shard(
    {
        f"state.**.{name}": mw.FIRST_DIVISIBLE
        for name in ("embedding", "q", "k", "v", "out", "up", "down")
    },
    axis="batch",
)

schedules = {
    "dp": [mw.data_parallel("batch", "batch.**")],
    "fsdp": [mw.data_parallel("batch", "batch.**"), mw.fsdp("batch")],
    "bp": [BP],
    "mp": [MP],
    "bp+mp": [BP, MP],
    "bp+mp+z3": [BP, MP, Z3],
}

workload = Workload(
    name="gpt3",
    title="automap's T24",
    paper="Brown et al., Language Models are Few-Shot Learners, NeurIPS 2020; "
    "Automatic Discovery of Composite SPMD Partitioning Strategies in PartIR, 2022",
    tiny=tiny,
    full=(t24,),
    train=train,
    steps=200,
    schedules=schedules,
    best="bp+mp+z3",
    mesh={"batch": 4, "model": 2},
    published=(
        Published(
            "T24",
            "parameter tensors",
            24 * 16 + 2,
            lambda: len(jax.tree.leaves(t24()[1][0].params)),
            "Automatic Discovery of Composite SPMD Partitioning Strategies in PartIR, "
            "2022: sixteen a block and two",
            within=0.0,
        ),
    ),
)

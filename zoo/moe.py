"""Language models that are mixtures of experts: GShard, Switch, and those of Alpa.

Decoders in which every other layer has experts in the place of its MLP; `zoo.experts`
is that layer, and names its papers. Each train step also returns the auxiliary losses and
the share of dropped choices.

`SIZES` are the models of Zheng et al., "Alpa: Automating Inter- and Intra-Operator
Parallelism for Distributed Deep Learning", OSDI 2022: MLPs of eight times d_model, the
scores from the embedding, 16 heads, two experts a token, capacity for choices that are
spread evenly, no balance loss there (here GShard's). Their layers normalise after each
sum and their attention sees all tokens; here blocks are pre-norm and causal.

GShard and Switch translate and fill gaps, with encoders; here both ways to route are of
the decoder: `tiny` routes to two experts, `tiny_switch` to one and a shared one.

Letters: B batch, S sequence, D d_model, N heads, F d_ff, V vocab.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

import meshwright as mw
from zoo.attention import REMAT, Attention, Mlp, Stack, causal_mask
from zoo.decoder import DTYPES
from zoo.experts import Experts, Measured, Routing, group_size
from zoo.layers import cross_entropy
from zoo.text import batches, load_text
from zoo.training import State, new_state
from zoo.workload import (
    Curve,
    Published,
    Workload,
    check_numbers,
    choose,
    published_parameters,
    sized,
)

OPTIMIZERS = {"adam": optax.adam, "adafactor": optax.adafactor}


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model and of its batch.

    layers: half of them with experts, the first of each two.
    d_ff: of every expert and of the MLPs in the other layers.
    dtype: of computation; the router, parameters and losses are 32-bit floats.
    remat: a name in REMAT, what two layers keep for their backward pass.
    optimizer: a name in OPTIMIZERS.
    """

    layers: int
    d_model: int
    heads: int
    d_ff: int
    vocab: int
    sequence: int
    batch: int
    routing: Routing
    dtype: str = "float32"
    remat: str = "none"
    rate: float = 3e-4
    optimizer: str = "adam"

    def __post_init__(self) -> None:
        check_numbers(self)
        choose(self.optimizer, OPTIMIZERS, "optimizer")
        choose(self.dtype, DTYPES, "dtype")
        choose(self.remat, REMAT, "rematerialisation")
        if self.layers < 2 or self.layers % 2:
            raise ValueError(
                f"every other layer has experts: layers are even, not {self.layers}"
            )
        if self.d_model % self.heads:
            raise ValueError(
                f"{self.heads} heads do not divide d_model {self.d_model}; give a divisor"
            )
        group_size(self.routing.group, self.batch, self.sequence)


def alpa(layers: int, d_model: int, experts: int) -> Config:
    """A row of Alpa's table."""
    return Config(
        layers, d_model, 16, 8 * d_model, 32_000, 1024, 1024, Routing(experts),
        dtype="bfloat16", remat="full",
    )  # fmt: skip


SIZES = {
    "moe_380m": alpa(8, 768, 8),
    "moe_690m": alpa(8, 768, 16),
    "moe_1_3b": alpa(16, 768, 16),
    "moe_2_4b": alpa(16, 1024, 16),
    "moe_10b": alpa(16, 1536, 32),
    "moe_27b": alpa(16, 2048, 48),
    "moe_70b": alpa(32, 2048, 64),
}
GSHARD = Routing(8, group=64, capacity_factor=1.25)
SWITCH = Routing(8, choices=1, group=64, capacity_factor=1.25, shared=1, router_z=0.001)
TINY = Config(2, 64, 8, 128, 256, 64, 16, GSHARD, rate=5e-3)
TINY_SWITCH = Config(2, 64, 8, 128, 256, 64, 16, SWITCH, rate=5e-3)

# -- the model ---------------------------------------------------------------------


class Pair(nn.Module):
    """Two layers: attention and experts, then attention and an MLP, all behind norms."""

    config: Config

    @nn.compact
    def __call__(
        self, carried: tuple[Array, Measured], mask: Array
    ) -> tuple[Array, Measured]:
        """The residual stream [B, S, D] after both, and sums with what was measured."""
        x, before = carried
        config, dtype = self.config, DTYPES[self.config.dtype]
        width = config.d_model // config.heads

        def norm(name: str, x: Array) -> Array:
            return nn.LayerNorm(dtype=dtype, name=f"{name}_norm")(x)

        def heard(name: str, x: Array) -> Array:
            attention = Attention(
                config.heads, width, bias=True, dtype=dtype, name=name
            )
            return attention(norm(name, x), mask)

        x = x + heard("attention", x)
        experts = Experts(config.routing, config.d_ff, dtype=dtype, name="experts")
        answers, measured = experts(norm("experts", x))
        x = x + answers
        x = x + heard("dense_attention", x)
        mlp = Mlp(config.d_ff, "relu", bias=True, dtype=dtype, name="mlp")
        x = x + mlp(norm("mlp", x))
        return x, jax.tree.map(jnp.add, before, measured)


class MoE(nn.Module):
    """Embedding, pairs of layers, a last norm, and scores over the vocabulary."""

    config: Config

    @nn.compact
    def __call__(self, tokens: Array) -> tuple[Array, Measured]:
        """Scores [B, S, V] of what follows `tokens` [B, S]; means over mixtures."""
        config, dtype = self.config, DTYPES[self.config.dtype]
        sequence = tokens.shape[1]
        if sequence > config.sequence:
            raise ValueError(
                f"a sequence of {sequence} is longer than the {config.sequence} "
                "learned positions"
            )
        embedding = partial(
            nn.Embed,
            features=config.d_model,
            embedding_init=nn.initializers.normal(config.d_model**-0.5),
            dtype=dtype,
        )
        token = embedding(config.vocab, name="embedding")
        position = embedding(config.sequence, name="positions")
        order = jnp.arange(sequence)
        x = token(tokens) + position(order)
        pairs = config.layers // 2
        stack = Stack(partial(Pair, config), pairs, remat=config.remat, name="stack")
        nothing = Measured(*jnp.zeros(3))
        x, sums = stack((x, nothing), causal_mask(order, sequence))
        scores = token.attend(nn.LayerNorm(dtype=dtype, name="norm")(x))
        means = jax.tree.map(lambda total: total / pairs, sums)
        return scores.astype(jnp.float32), means


# -- training ----------------------------------------------------------------------


def start(config: Config, key: Array) -> State:
    """Parameters drawn from `key`, and the optimizer at rest."""
    tokens = jnp.zeros((1, 1), jnp.int32)
    params = MoE(config).init(key, tokens)["params"]
    return new_state(params, OPTIMIZERS[config.optimizer](config.rate))


def losses(
    config: Config, params: Any, batch: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """The minimized loss, and its parts.

    "loss" is the mean cross-entropy, in nats a token; every mixture adds its balance and
    z losses to it.
    """
    scores, means = MoE(config).apply({"params": params}, batch["inputs"])
    told = {"loss": cross_entropy(scores, batch["targets"])} | means._asdict()
    routing, mixtures = config.routing, config.layers // 2
    beside = routing.balance * means.balance + routing.router_z * means.router_z
    return told["loss"] + mixtures * beside, told


def train_step(
    config: Config, state: State, batch: dict[str, Array]
) -> tuple[State, dict[str, Array]]:
    """The state after one update, and what was measured before it.

    That is "loss", and "balance", "router_z" and "dropped" as means of `Measured`.
    """
    descend = jax.grad(partial(losses, config), has_aux=True)
    gradients, told = descend(state.params, batch)
    optimizer = OPTIMIZERS[config.optimizer](config.rate)
    updates, rest = optimizer.update(gradients, state.optimizer, state.params)
    return State(optax.apply_updates(state.params, updates), rest, state.stats), told


def learn(config: Config, seed: int, steps: int) -> Curve:
    """What each step of `config` on bytes of text measured."""
    state = jax.jit(partial(start, config))(jax.random.key(seed))
    step = jax.jit(partial(train_step, config))
    text = batches(load_text(), config.batch, config.sequence, seed)
    for _, batch in zip(range(steps), text, strict=False):
        state, told = step(state, batch)
        yield {name: float(told[name]) for name in ("loss", *Measured._fields)}


def train(seed: int, steps: int) -> Curve:
    """What each step of the small GShard on bytes of text measured."""
    return learn(TINY, seed, steps)


# -- targets and schedules ---------------------------------------------------------


def train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    """The train step of a model and the types of its arguments."""
    state = jax.eval_shape(partial(start, config), jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((config.batch, config.sequence), jnp.int32)
    return partial(train_step, config), (state, {"inputs": tokens, "targets": tokens})


def _small(config: Config) -> tuple[Any, tuple[Any, ...]]:
    state = jax.jit(partial(start, config))(jax.random.key(0))
    batch = next(batches(load_text(), config.batch, config.sequence, seed=0))
    return partial(train_step, config), (state, batch)


def tiny():
    """Two experts a token of eight, and bytes of real text, as arrays."""
    return _small(TINY)


def tiny_switch():
    """One expert a token of eight and one for all, with both losses, as arrays."""
    return _small(TINY_SWITCH)


def tiny_forward():
    """The scores of what follows each byte of a text."""
    _, (state, batch) = tiny()

    def forward(params: Any, inputs: Array) -> Array:
        return MoE(TINY).apply({"params": params}, inputs)[0]

    return forward, (state.params, batch["inputs"][:1])


inference = {"tiny": tiny_forward}

targets = sized(train_target, SIZES)

DP = mw.data_parallel("data", "batch.**")
EXPERTS = mw.expert_parallel("model")
EVERYWHERE = [DP, mw.data_parallel("model", "batch.**"), EXPERTS]

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+ep": [DP, EXPERTS],
    "dp2+ep": EVERYWHERE,
    "dp2+ep+z3": [*EVERYWHERE, mw.zero(3, "data")],
}
"""GShard's is "dp2+ep": all devices share the batch, those along "model" also the
experts, to which tokens travel by all-to-all."""


_BILLIONS = {
    "moe_380m": 0.38, "moe_690m": 0.69, "moe_1_3b": 1.3, "moe_2_4b": 2.4, "moe_10b": 10,
    "moe_27b": 27, "moe_70b": 70,
}  # fmt: skip


def _published(name: str, billions: float) -> Published:
    # Two digits: Alpa's own formula gives 1.35 billion for what it calls 1.3.
    within = 0.04 if name == "moe_1_3b" else 0.02
    source = "Zheng et al., 2022, table of models; named so"
    return published_parameters(name, billions * 1e9, targets[name], source, within)


workload = Workload(
    name="moe",
    title="GShard MoE, Switch",
    paper="Lepikhin et al., GShard: Scaling Giant Models with Conditional Computation "
    "and Automatic Sharding, ICLR 2021; Fedus et al., Switch Transformers, JMLR 2022",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=100,
    schedules=schedules,
    best="dp2+ep",
    published=tuple(_published(name, size) for name, size in _BILLIONS.items()),
)

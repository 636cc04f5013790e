"""Learning to rank: an MLP that scores items, trained by a listwise loss.

R. Jagerman, X. Wang, H. Zhuang, Z. Qin, M. Bendersky, M. Najork, "Rax: Composable
Learning-to-Rank Using JAX", KDD 2022, for losses and metrics (`zoo.listwise`); the
scorer is the MLP on which such losses are compared (Z. Qin et al., "Are Neural Rankers
still Outperformed by Gradient Boosted Decision Trees?", ICLR 2021): features enter by
sign(x) log(1 + |x|), and sizes are named after the sets with 136, 699 and 220 of them.
Assumed: widths of 1024, 512 and 256, lists of 200 items, Adam.

Letters: B lists, L items of a list, X features.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

import meshwright as mw
from zoo.letor import MadeLists, batches
from zoo.listwise import LOSSES, mrr, ndcg
from zoo.once import once
from zoo.training import State, TrainStep, new_state, train_step_of
from zoo.workload import Curve, Workload, check_numbers, choose, sized


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a scorer and of its batch, and how it is trained.

    loss: a name of `zoo.listwise.LOSSES`.
    """

    features: int
    hidden: tuple[int, ...]
    items: int
    batch: int
    rate: float
    loss: str = "softmax"

    def __post_init__(self) -> None:
        choose(self.loss, LOSSES, "loss")
        check_numbers(self)
        if self.items < 2:
            raise ValueError(f"a list to rank has 2 items or more, not {self.items}")


MLP = partial(Config, hidden=(1024, 512, 256), items=200, batch=128, rate=1e-3)

SIZES = {"web30k": MLP(136), "yahoo": MLP(699), "istella": MLP(220)}
TINY = Config(16, hidden=(64, 32), items=24, batch=32, rate=3e-3)


class Scorer(nn.Module):
    """A score for each item, from its features alone."""

    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """Scores [B, L] of `features` [B, L, X]."""
        x = jnp.sign(features) * jnp.log1p(jnp.abs(features))
        for i, width in enumerate(self.hidden):
            x = nn.relu(nn.Dense(width, name=f"layer_{i}")(x))
        return nn.Dense(1, name="score")(x)[..., 0]


def scores(config: Config, params: dict, features: Array) -> Array:
    """Of the items [B, L]."""
    return Scorer(config.hidden).apply({"params": params}, features)


def loss(config: Config, params: dict, batch: dict[str, Array]) -> Array:
    """The mean over lists."""
    found = scores(config, params, batch["features"])
    return LOSSES[config.loss](found, batch["labels"], where=batch["where"])


def init(config: Config, key: Array) -> dict:
    """Parameters drawn from `key`."""
    return Scorer(config.hidden).init(key, jnp.zeros((1, 1, config.features)))["params"]


def start(config: Config, key: Array) -> State:
    """The state before the first step."""
    return new_state(init(config, key), optax.adam(config.rate))


def train_step_for(config: Config) -> TrainStep:
    """`step(state, batch)`: one update."""
    return train_step_of(partial(loss, config), optax.adam(config.rate))


def made_batches(config: Config, seed: int, count: int = 2**16) -> Iterator[dict]:
    """Batches of `count` made lists; `zoo.letor.load_letor` gives those of a file."""
    lists = MadeLists(count, config.items, config.features, seed)
    return batches(lists, config.batch, seed)


def measure(config: Config, params: dict, batch: dict[str, Array]) -> dict[str, Array]:
    """NDCG and MRR; an item is a hit for MRR if it has the highest label."""
    found = scores(config, params, batch["features"])
    best = batch["labels"] == jnp.max(batch["labels"], axis=-1, keepdims=True)
    where = batch["where"]
    return {
        "ndcg": ndcg(found, batch["labels"], where=where),
        "mrr": mrr(found, best.astype(jnp.float32), where=where),
    }


def learn(config: Config, seed: int, steps: int) -> Curve:
    """The loss of each step, and metrics of its batch, which the step has not seen."""
    step = jax.jit(train_step_for(config))
    metrics = jax.jit(partial(measure, config))
    state = once(partial(start, config))(jax.random.key(seed))
    made = made_batches(config, seed)
    for _, batch in zip(range(steps), made, strict=False):
        quality = metrics(state.params, batch)
        state, value = step(state, batch)
        yield {"loss": float(value)} | {k: float(v) for k, v in quality.items()}


def train(seed: int, steps: int) -> Curve:
    """`learn`, in its small form."""
    return learn(TINY, seed, steps)


# -- targets and schedules ---------------------------------------------------------


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    state = jax.eval_shape(partial(start, config), jax.random.key(0))
    lists = (config.batch, config.items)
    batch = {
        "features": jax.ShapeDtypeStruct((*lists, config.features), jnp.float32),
        "labels": jax.ShapeDtypeStruct(lists, jnp.float32),
        "where": jax.ShapeDtypeStruct(lists, jnp.bool_),
    }
    return train_step_for(config), (state, batch)


def tiny():
    """A scorer with two hidden layers, and made lists, as arrays."""
    state = once(partial(start, TINY))(jax.random.key(0))
    return train_step_for(TINY), (state, next(made_batches(TINY, seed=0)))


def tiny_forward():
    """The scores of a list of items."""
    _, (state, batch) = tiny()
    return partial(scores, TINY), (state.params, batch["features"][:1])


inference = {"tiny": tiny_forward}

targets = sized(_train_target, SIZES)

DP = mw.data_parallel("data", "batch.**")

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+mp": [DP, mw.megatron("model", vocabulary=False)],
    "dp+mp+z3": [DP, mw.megatron("model", vocabulary=False), mw.zero(3, "data")],
}

workload = Workload(
    name="ranking",
    title="Ranking",
    paper="Jagerman et al., Rax: Composable Learning-to-Rank Using JAX, KDD 2022",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=300,
    schedules=schedules,
    best="dp+mp",
)

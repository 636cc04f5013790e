"""A serving loop of T32: prefill, then one token after another from a cache.

PartIR (Alabed et al., ASPLOS 2025) counts the collectives of `IT32`, the "inference
serving loop" of its transformer of five billion parameters. Its weights are those of
`zoo/gpt.py`, its blocks those of `zoo/gpt_cached.py`, with all heads or with one head of
keys and values. The latter leaves nothing for a schedule to cut by heads, but the cache
can be cut along the batch (Pope et al., "Efficiently Scaling Transformer Inference",
MLSys 2023, section 3.3).

Not stated by PartIR, assumed here: a batch of 64, and 512 tokens of prompt, so that 1,536
more fill the 2,048 positions of training; the prefill gives the first of them and the
loop the other 1,535. Two all-reduces a layer in each of these 1,536 passes are the 98,304
of PartIR's table for MP and BP+MP (a prefill and 1,536 steps would have 98,368); BP has
none there and here.

Letters: B batch, P prompt, V vocab.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

import meshwright as mw
from zoo import gpt
from zoo.gpt_cached import empty_caches, forward, to_multi_head, to_multi_query
from zoo.text import batches, load_text
from zoo.workload import Curve, Workload, check_numbers, sized

Batch = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Config:
    """What is served, and how.

    prompt, new: tokens given, and tokens made after them.
    cache: positions that keys and values are kept for.
    multi_query: one key-value head for all heads.
    temperature: scores are divided by it; 0 takes the best token always.
    top_k: tokens to draw from, all if None; only with a temperature above 0.
    """

    model: gpt.Config
    prompt: int
    new: int
    cache: int
    batch: int
    multi_query: bool = False
    temperature: float = 0.0
    top_k: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.prompt + self.new > self.cache:
            raise ValueError(
                f"a prompt of {self.prompt} tokens and {self.new} new ones make a "
                f"sequence of {self.prompt + self.new}, longer than the cache of "
                f"{self.cache} positions"
            )
        if self.top_k is not None:
            self._check_top_k(self.top_k)

    def _check_top_k(self, top_k: int) -> None:
        if top_k > self.model.vocab:
            raise ValueError(
                f"top_k is at most the {self.model.vocab} tokens there are, not {top_k}"
            )
        if self.temperature == 0:
            raise ValueError(
                f"temperature 0 draws nothing, so that top_k {top_k} means nothing: give "
                "a temperature above 0, or no top_k"
            )


TINY = Config(replace(gpt.TINY, layers=2), prompt=16, new=16, cache=32, batch=16)
SIZES = {
    "it32": Config(gpt.T32, prompt=512, new=1536, cache=2048, batch=64),
    "it32_multi_query": Config(
        gpt.T32, prompt=512, new=1536, cache=2048, batch=64, multi_query=True
    ),
    "it32_sampled": Config(
        gpt.T32, prompt=512, new=1536, cache=2048, batch=64, temperature=0.8, top_k=40
    ),
}


# -- the loop ----------------------------------------------------------------------


def pick(config: Config, scores: Array, key: Array | None) -> Array:
    """Tokens [B] drawn from scores [B, V], or the best of them at temperature 0."""
    if config.temperature == 0:
        return jnp.argmax(scores, axis=-1)
    if config.top_k is not None:
        least = jax.lax.top_k(scores, config.top_k)[0][:, -1:]
        scores = jnp.where(scores < least, -1e30, scores)
    return jax.random.categorical(key, scores / config.temperature)


def serve(config: Config, params: dict, batch: Batch) -> Array:
    """Tokens [B, new] after each prompt of `batch`: "prompt" [B, P], "key" to draw."""
    prompt, keys = batch["prompt"], _keys(config, batch)
    if prompt.shape[1] != config.prompt:
        raise ValueError(
            f"prompts of {prompt.shape[1]} tokens where {config.prompt} are configured"
        )
    caches = empty_caches(params, len(prompt), config.cache)
    scores, caches = forward(params, prompt, 0, caches)
    first = pick(config, scores, None if keys is None else keys[0])

    def one(carry: tuple, now: tuple) -> tuple[tuple, Array]:
        token, caches = carry
        position, key = now
        scores, caches = forward(params, token[:, None], position, caches)
        token = pick(config, scores, key)
        return (token, caches), token

    steps = jnp.arange(config.prompt, config.prompt + config.new - 1)
    rest = None if keys is None else keys[1:]
    _, tokens = jax.lax.scan(one, (first, caches), (steps, rest))
    return jnp.concatenate([first[:, None], tokens.T], axis=1)


def serve_anew(config: Config, params: dict, batch: Batch) -> Array:
    """What `serve` gives, without a cache: `zoo.gpt` on all that there is, each time."""
    keys = _keys(config, batch)
    params = to_multi_head(params) if config.multi_query else params
    room = jnp.zeros((len(batch["prompt"]), config.new), jnp.int32)
    text = jnp.concatenate([batch["prompt"], room], axis=1)

    def one(text: Array, now: tuple) -> tuple[Array, Array]:
        position, key = now
        scores = gpt.logits(params, text)[:, position - 1]
        token = pick(config, scores, key)
        return text.at[:, position].set(token), token

    steps = jnp.arange(config.prompt, config.prompt + config.new)
    return jax.lax.scan(one, text, (steps, keys))[1].T


def _keys(config: Config, batch: Batch) -> Array | None:
    if config.temperature == 0:
        return None
    return jax.random.split(batch["key"], config.new)


def init(config: Config, key: Array) -> dict:
    """Parameters drawn from `key`."""
    params = gpt.init(config.model, key).params
    return to_multi_query(params) if config.multi_query else params


def made_prompts(config: Config, seed: int) -> Batch:
    """Windows of the zoo's text, and a key if tokens are drawn."""
    windows = next(batches(load_text(), config.batch, config.prompt, seed))
    key = {} if config.temperature == 0 else {"key": jax.random.key(seed)}
    return {"prompt": windows["inputs"]} | key


def train(seed: int, steps: int) -> Curve:
    """The loss of each step of training of the tiny model that is then served."""
    model = TINY.model
    state = jax.jit(partial(gpt.init, model))(jax.random.key(seed))
    step = jax.jit(gpt.train_step)
    text = batches(load_text(), model.batch, model.sequence, seed)
    for _, batch in zip(range(steps), text, strict=False):
        state, loss = step(state, batch)
        yield {"loss": float(loss)}


# -- targets and schedules ---------------------------------------------------------


def _serve_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    params = jax.eval_shape(partial(init, config), jax.random.key(0))
    batch = {"prompt": jax.ShapeDtypeStruct((config.batch, config.prompt), jnp.int32)}
    if config.temperature > 0:
        batch["key"] = jax.eval_shape(jax.random.key, 0)
    return partial(serve, config), (params, batch)


def tiny():
    """Sixteen tokens after each of sixteen prompts, as arrays."""
    return _tiny(TINY)


def tiny_multi_query():
    """The same with one head of keys and values."""
    return _tiny(replace(TINY, multi_query=True))


def tiny_sampled():
    """The same with tokens drawn from the best twenty."""
    return _tiny(replace(TINY, temperature=0.8, top_k=20))


def _tiny(config: Config) -> tuple[Any, tuple[Any, ...]]:
    params = jax.jit(partial(init, config))(jax.random.key(0))
    return partial(serve, config), (params, made_prompts(config, seed=0))


targets = sized(_serve_target, SIZES)

DP = mw.data_parallel("data", "batch.**")
BP = mw.shard({"batch.prompt": 0}, axis="data")
MP = mw.shard({"params.**.q*": -3, "params.**.out": 0, "params.**.up": 2}, axis="model")
MQ = [
    mw.replicate("tag:new", axis="model"),
    mw.shard({"tag:cache": 0, "tag:sequences": 0, "tag:heads": 2}, axis="model"),
]
schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "bp": [BP],
    "mp": [MP],
    "bp+mp": [BP, MP],
    "bp+mq+mp": [BP, *MQ, MP],
}
"""PartIR's BP, MP and BP+MP, and MQ after Pope et al.: while tokens are made, the cache
and what reads it are cut along the batch, and only queries and their results change
sides. MQ comes before MP: what an earlier tactic has cut, a later one leaves."""

workload = Workload(
    name="serving",
    title="Serving loop of T32",
    paper="Alabed et al., PartIR: Composing SPMD Partitioning Strategies for "
    "Machine Learning, ASPLOS 2025",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=60,
    schedules=schedules,
    best="bp+mp",
)

"""PaLM: a decoder of parallel blocks with multi-query attention, as two programs.

Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways" (2022). `prefill` reads
prompts and `decode` makes one token from a cache, as Pope et al., "Efficiently Scaling
Transformer Inference" (MLSys 2023), serve it: both take the same weights. A block adds
attention and a gated feed-forward layer to the same normalized input. There are no
biases, and the embedding is that of the scores.

Weights may be 8-bit integers with a scale for each output, as in the paper's fast rows.

Letters: B batch, S positions of this pass, T positions of the cache, E d_model, F d_ff,
N heads, H d_head, V vocab, L layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from zoo.attention import Cache, attend, causal_mask
from zoo.layers import rms_norm, rotary_angles, rotate
from zoo.workload import check_numbers, sized

ROTARY_BASE = 10_000.0

QUERIES = 256
"""Queries of a prompt whose scores are computed at a time."""

Weights = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of the model, of a batch, and of its cache.

    prompt: tokens of a prompt. cache: positions that keys and values are kept for.
    is_quantized: whether weights are 8-bit integers.
    """

    layers: int
    d_model: int
    d_ff: int
    heads: int
    d_head: int
    vocab: int
    batch: int
    prompt: int
    cache: int
    dtype: str = "bfloat16"
    is_quantized: bool = False

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.prompt > self.cache:
            raise ValueError(
                f"a prompt of {self.prompt} tokens is longer than the cache of "
                f"{self.cache} positions"
            )


TINY = Config(
    layers=2, d_model=32, d_ff=128, heads=8, d_head=8, vocab=64,
    batch=8, prompt=8, cache=16, dtype="float32",
)  # fmt: skip
SIZES = {
    "palm_540b": Config(118, 18432, 73728, 64, 256, 256_000, 512, 2048, 2112),
    "palm_62b": Config(64, 8192, 32768, 32, 256, 256_000, 512, 2048, 2112),
}
"""The paper pads the 48 heads of the largest model to 64."""


# -- the model ---------------------------------------------------------------------


def init(config: Config, key: Array) -> dict[str, Any]:
    """Weights drawn from `key`, those of all layers stacked."""
    e, f, n, h = config.d_model, config.d_ff, config.heads, config.d_head
    shapes = {
        "q": ((e, n, h), (0,)),
        "kv": ((2, e, h), (1,)),
        "gate": ((e, f), (0,)),
        "up": ((e, f), (0,)),
        "down": ((f, e), (0,)),
        "out": ((n, h, e), (0, 1)),
    }
    keys = jax.random.split(key, len(shapes) + 1)
    blocks: dict[str, Any] = {"norm": jnp.ones((config.layers, e), config.dtype)}
    for k, (name, (shape, summed)) in zip(keys, shapes.items(), strict=False):
        stacked = jax.random.normal(k, (config.layers, *shape))
        fan_in = jnp.prod(jnp.array([shape[d] for d in summed]))
        blocks |= _stored(config, name, stacked * fan_in**-0.5, summed)
    embedding = jax.random.normal(keys[-1], (config.vocab, e)) * e**-0.5
    return {
        "embedding": embedding.astype(config.dtype),
        "norm": jnp.ones((e,), config.dtype),
        "blocks": blocks,
    }


def _stored(
    config: Config, name: str, weight: Array, summed: tuple[int, ...]
) -> dict[str, Array]:
    """A weight by its name; in 8 bits with the scale of each output."""
    if not config.is_quantized:
        return {name: weight.astype(config.dtype)}
    dims = tuple(d + 1 for d in summed)
    scale = jnp.max(jnp.abs(weight), axis=dims) / 127
    whole = jnp.expand_dims(scale, dims)
    return {
        name: jnp.round(weight / whole).astype(jnp.int8),
        f"{name}_scale": scale.astype(config.dtype),
    }


def _product(equation: str, x: Array, weights: Weights, name: str) -> Array:
    """A product with a weight, times the scales of its outputs if it is quantized."""
    y = jnp.einsum(equation, x, weights[name].astype(x.dtype))
    scale = weights.get(f"{name}_scale")
    return y if scale is None else y * scale


def attend_by_queries(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of a prompt, `QUERIES` at a time, so that fewer scores are kept."""
    batch, sequence, *rest = q.shape
    size = QUERIES if sequence % QUERIES == 0 else sequence
    groups = q.reshape(batch, sequence // size, size, *rest)

    def one(now: tuple[Array, Array]) -> Array:
        start, own = now
        return attend(own, k, v, causal_mask(start + jnp.arange(size), sequence))

    starts = jnp.arange(0, sequence, size)
    seen = jax.lax.map(one, (starts, jnp.moveaxis(groups, 1, 0)))
    return jnp.moveaxis(seen, 0, 1).reshape(q.shape)


def block(
    x: Array, weights: Weights, positions: Array, caches: Cache, layer: Array
) -> tuple[Array, Cache]:
    """One layer on x [B, S, E] at `positions` [S], and all caches with its keys.

    Only new keys and values are written, so that a donated cache is updated in place.
    """
    heard = rms_norm(x, weights["norm"])
    table = rotary_angles(positions, caches.k.shape[-1], ROTARY_BASE)
    table = tuple(t.astype(x.dtype) for t in table)
    q = rotate(_product("bse,enh->bsnh", heard, weights, "q"), table)
    kv = jnp.einsum("bse,ceh->cbsh", heard, weights["kv"].astype(x.dtype))
    if "kv_scale" in weights:
        kv = kv * weights["kv_scale"][:, None, None]
    kv = kv[..., None, :]
    k, v = rotate(kv[0], table), kv[1]
    start = (layer, 0, positions[0], 0, 0)
    caches = Cache(
        *(
            jax.lax.dynamic_update_slice(old, new[None], start)
            for old, new in zip(caches, (k, v), strict=True)
        )
    )
    if x.shape[1] == 1:
        own = (jax.lax.dynamic_index_in_dim(c, layer, keepdims=False) for c in caches)
        seen = attend(q, *own, causal_mask(positions, caches.k.shape[2]))
    else:
        seen = attend_by_queries(q, k, v)
    hidden = jax.nn.silu(_product("bse,ef->bsf", heard, weights, "gate"))
    hidden = hidden * _product("bse,ef->bsf", heard, weights, "up")
    y = _product("bsnh,nhe->bse", seen, weights, "out")
    return x + (y + _product("bsf,fe->bse", hidden, weights, "down")), caches


def forward(
    params: Mapping[str, Any], caches: Cache, tokens: Array, position: Array | int
) -> tuple[Array, Cache]:
    """Scores [B, V] after the last of tokens [B, S], which begin at `position`."""
    x = jnp.take(params["embedding"], tokens, axis=0)
    positions = position + jnp.arange(tokens.shape[1])

    def layer(
        state: tuple[Array, Cache], own: tuple[Weights, Array]
    ) -> tuple[tuple[Array, Cache], None]:
        x, caches = state
        return block(x, own[0], positions, caches, own[1]), None

    numbers = jnp.arange(caches.k.shape[0])
    (x, caches), _ = jax.lax.scan(layer, (x, caches), (params["blocks"], numbers))
    last = rms_norm(x[:, -1], params["norm"])
    return jnp.einsum("be,ve->bv", last, params["embedding"]), caches


def empty_caches(config: Config) -> Cache:
    """Keys and values [L, B, T, 1, H] of zeros."""
    shape = (config.layers, config.batch, config.cache, 1, config.d_head)
    return Cache(jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype))


# -- the two programs --------------------------------------------------------------


def prefill(
    config: Config, params: Mapping[str, Any], tokens: Array
) -> tuple[Array, Cache]:
    """The best first tokens [B] after prompts [B, S], and their keys and values."""
    scores, caches = forward(params, empty_caches(config), tokens, 0)
    return jnp.argmax(scores, axis=-1), caches


def decode(
    params: Mapping[str, Any], caches: Cache, tokens: Array, position: Array
) -> tuple[Array, Cache]:
    """The best next tokens [B] after tokens [B] at `position`, and the caches with them."""
    scores, caches = forward(params, caches, tokens[:, None], position)
    return jnp.argmax(scores, axis=-1), caches


def _shapes(config: Config) -> Any:
    return jax.eval_shape(partial(init, config), jax.random.key(0))


def prefill_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    """`prefill` and the shapes of its arguments."""
    tokens = jax.ShapeDtypeStruct((config.batch, config.prompt), jnp.int32)
    return partial(prefill, config), (_shapes(config), tokens)


def decode_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    """`decode` and the shapes of its arguments."""
    caches = jax.eval_shape(partial(empty_caches, config))
    tokens = jax.ShapeDtypeStruct((config.batch,), jnp.int32)
    return decode, (
        _shapes(config),
        caches,
        tokens,
        jax.ShapeDtypeStruct((), jnp.int32),
    )


targets = sized(prefill_target, SIZES)
decode_targets = sized(decode_target, SIZES)


def tiny_prefill(config: Config = TINY) -> tuple[Any, tuple[Any, ...]]:
    """Eight prompts of eight tokens, as arrays."""
    params = jax.jit(partial(init, config))(jax.random.key(0))
    tokens = jax.random.randint(
        jax.random.key(1), (config.batch, config.prompt), 0, config.vocab
    )
    return partial(prefill, config), (params, tokens)


def tiny_decode(config: Config = TINY) -> tuple[Any, tuple[Any, ...]]:
    """One more token after each of those prompts, as arrays."""
    fn, (params, tokens) = tiny_prefill(config)
    first, caches = jax.jit(fn)(params, tokens)
    return decode, (params, caches, first, jnp.int32(config.prompt))

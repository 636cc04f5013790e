"""The layers of T5, and the sizes that they are built from; see `zoo/t5.py`.

Letters: B batch, S queries, T keys, D d_model, N heads, H d_head.
"""

from dataclasses import dataclass
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from zoo.attention import Cache, Mlp
from zoo.layers import EPSILON
from zoo.span_corruption import PAD
from zoo.workload import check_numbers

NEVER = -1e9
"""A bias that takes a key out of sight, and is finite where all of them are."""

Caches = tuple[Cache, Cache]
"""Keys and values of the text so far, and of the inputs."""

Biases = tuple[Array, Array]
"""What is added to the scores of each of these."""


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model and of its batch.

    layers: of the encoder, and as many of the decoder.
    gated, tied: MLPs that gate (GEGLU) or not (ReLU); scores by the embedding or by a
        matrix of their own. T5 is tied, T5 1.1 gated.
    buckets, max_distance: of relative positions; farther ones share the last bucket.
    rate: relative to the size of a parameter.
    scan: one traced block for all layers of a kind, or every layer for itself.
    dropout: share of the elements that are dropped, the same ones at all positions, by the
        random numbers "dropout", which a step of one's own gives to `apply`.
    """

    layers: int
    d_model: int
    heads: int
    d_head: int
    d_ff: int
    vocab: int = 32_128
    inputs: int = 512
    targets: int = 114
    batch: int = 128
    gated: bool = False
    tied: bool = True
    buckets: int = 32
    max_distance: int = 128
    rate: float = 1e-2
    scan: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.dropout >= 1:
            raise ValueError(f"dropout is {self.dropout}; wanted 0 or more, below 1")
        if self.buckets < 4 or self.buckets % 4:
            raise ValueError(
                "buckets are halved for the two directions, and again for near and far "
                f"ones: a multiple of 4, not {self.buckets}"
            )
        if self.max_distance <= self.buckets // 2:
            raise ValueError(
                f"max_distance {self.max_distance} leaves no room for far buckets: "
                f"half of {self.buckets} buckets are distances of their own"
            )


def bucket(distance: Array, config: Config, *, both: bool) -> Array:
    """The bucket of the bias for a distance: position of key less that of query.

    Near distances have buckets of their own, far ones share them by logarithm. both:
    half of the buckets are for keys that come later; else those count as distance 0.
    """
    half = config.buckets // 2 if both else config.buckets
    later = jnp.where(distance > 0, half, 0) if both else 0
    distance = jnp.abs(distance) if both else jnp.maximum(-distance, 0)
    near = half // 2
    share = jnp.log(jnp.maximum(distance, 1) / near) / jnp.log(
        config.max_distance / near
    )
    far = jnp.minimum(near + (share * (half - near)).astype(int), half - 1)
    return later + jnp.where(distance < near, distance, far)


def hidden(tokens: Array) -> Array:
    """A bias [B, 1, 1, S] that takes padding out of sight."""
    return jnp.where(tokens == PAD, NEVER, 0.0)[:, None, None, :]


def dropout(config: Config) -> nn.Dropout:
    """Drops channels of [..., S, D], the same at all positions."""
    return nn.Dropout(config.dropout, (-2,), deterministic=False)


class Positions(nn.Module):
    """A bias for each head and bucket of distances."""

    config: Config
    both: bool

    @nn.compact
    def __call__(self, queries: Array, num_keys: int) -> Array:
        """Biases [1, N, S, T] of keys 0 to T - 1 at query positions [S].

        Unless `both`, keys that come later are out of sight.
        """
        shape = (self.config.buckets, self.config.heads)
        table = self.param("table", nn.initializers.normal(0.1), shape)
        distance = jnp.arange(num_keys) - queries[:, None]
        bias = table[bucket(distance, self.config, both=self.both)]
        if not self.both:
            bias = jnp.where((distance > 0)[..., None], NEVER, bias)
        return bias.transpose(2, 0, 1)[None]


class Attention(nn.Module):
    """Softmax of q k + bias, not divided by the root of d_head."""

    config: Config

    def setup(self) -> None:
        heads = (self.config.heads, self.config.d_head)
        project = partial(nn.DenseGeneral, heads, use_bias=False)
        deviation = (self.config.d_model * self.config.d_head) ** -0.5
        self.q = project(kernel_init=nn.initializers.normal(deviation))
        self.k, self.v = project(), project()
        self.out = nn.DenseGeneral(self.config.d_model, axis=(-2, -1), use_bias=False)
        self.dropout = dropout(self.config)

    def keys(self, source: Array) -> Cache:
        """Keys and values [B, T, N, H] of source [B, T, D]."""
        return Cache(self.k(source), self.v(source))

    def __call__(self, x: Array, seen: Cache, bias: Array) -> Array:
        """Attention [B, S, D] of x [B, S, D]; bias broadcasts to [B, N, S, T]."""
        scores = jnp.einsum("bsnh,btnh->bnst", self.q(x), seen.k) + bias
        weights = self.dropout(jax.nn.softmax(scores, axis=-1))
        return self.out(jnp.einsum("bnst,btnh->bsnh", weights, seen.v))


def _norm() -> nn.RMSNorm:
    return nn.RMSNorm(epsilon=EPSILON)


def _mlp(config: Config) -> Mlp:
    activation = "gelu" if config.gated else "relu"
    return Mlp(
        config.d_ff, activation, config.gated, dropout=config.dropout, alike=(-2,)
    )


class EncoderBlock(nn.Module):
    """Attention over the inputs and an MLP, each behind a norm, added to what came."""

    config: Config

    def setup(self) -> None:
        self.attention, self.mlp = Attention(self.config), _mlp(self.config)
        self.attention_norm, self.mlp_norm = _norm(), _norm()
        self.dropout = dropout(self.config)

    def __call__(self, x: Array, bias: Array) -> Array:
        """The residual stream [B, S, D] after this layer."""
        heard = self.attention_norm(x)
        keys = self.attention.keys(heard)
        x = x + self.dropout(self.attention(heard, keys, bias))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class DecoderBlock(nn.Module):
    """As in the encoder, with attention over the encoder's output between the two."""

    config: Config

    def setup(self) -> None:
        self.attention, self.cross = Attention(self.config), Attention(self.config)
        self.mlp, self.dropout = _mlp(self.config), dropout(self.config)
        self.attention_norm, self.cross_norm, self.mlp_norm = (
            _norm(), _norm(), _norm(),
        )  # fmt: skip

    def __call__(self, x: Array, memory: Array, biases: Biases) -> Array:
        """The residual stream [B, T, D] after this layer; memory [B, S, D]."""
        heard = self.attention_norm(x)
        seen = self.attention.keys(heard), self.cross.keys(memory)
        return self.rest(x, heard, seen, biases)

    def step(
        self,
        x: Array,
        position: Array,
        caches: Caches,
        biases: Biases,
    ) -> tuple[Array, Cache]:
        """The same for a single position: x [B, 1, D], and the cache that holds it."""
        heard, (cache, memory) = self.attention_norm(x), caches
        put = partial(jax.lax.dynamic_update_slice_in_dim, start_index=position, axis=1)
        cache = Cache(*map(put, cache, self.attention.keys(heard)))
        return self.rest(x, heard, (cache, memory), biases), cache

    def rest(
        self,
        x: Array,
        heard: Array,
        seen: Caches,
        biases: Biases,
    ) -> Array:
        """All of the layer, once keys and values are known."""
        x = x + self.dropout(self.attention(heard, seen[0], biases[0]))
        x = x + self.dropout(self.cross(self.cross_norm(x), seen[1], biases[1]))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))

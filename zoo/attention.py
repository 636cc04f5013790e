"""Attention, MLP and a stack of blocks, as linen modules that text models share.

Letters: B batch, S queries, T keys, D d_model, N heads, K key-value heads, H d_head,
F d_ff.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel,
    splash_attention_mask,
)

from zoo.layers import rotary_angles, rotate

ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "gelu": jax.nn.gelu,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "squared_relu": lambda x: jnp.square(jax.nn.relu(x)),  # Primer (So et al., 2021)
}

REMAT = {
    "none": None,
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}
"""What a block keeps for its backward pass, by the name that configurations use."""


class Cache(NamedTuple):
    """Keys and values [B, T, K, H]; positions that are not filled yet are zeros."""

    k: Array
    v: Array


def attend(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    """Softmax attention [B, S, N, H] of q [B, S, N, H] over k, v [B, T, K, H].

    K divides N: each key-value head serves N / K query heads (Ainslie et al., 2023;
    K = 1 is multi-query, Shazeer, 2019). mask: true where a key is seen, and broadcasts
    to [B, S, T].
    """
    batch, sequence, heads, d_head = q.shape
    groups = (batch, sequence, k.shape[2], heads // k.shape[2], d_head)
    scores = jnp.einsum("bskgh,btkh->bkgst", q.reshape(groups), k) * d_head**-0.5
    scores = scores.astype(jnp.float32)
    if mask is not None:
        whole = jnp.broadcast_to(mask, (mask.ndim < 3) * (1,) + mask.shape)
        scores = jnp.where(whole[:, None, None], scores, -1e30)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bkgst,btkh->bskgh", weights, v).reshape(q.shape)


def causal_mask(queries: Array, num_keys: int) -> Array:
    """True [S, T] where key position t is not later than the query positions [S]."""
    return jnp.arange(num_keys) <= queries[:, None]


def attend_in_blocks(q: Array, k: Array, v: Array, block: int) -> Array:
    """Causal attention like `attend`, without the whole matrix of scores in memory.

    It computes one key-value head after another, with `block` queries at a time over the
    keys up to them, and recomputes scores for gradients (Rabe and Staats, "Self-attention
    Does Not Need O(n^2) Memory", 2021). Not for schedules that cut heads.
    """
    batch, sequence, heads, d_head = q.shape
    groups = q.reshape(batch, sequence, k.shape[2], heads // k.shape[2], d_head)

    @jax.checkpoint
    def attend_head(q: Array, k: Array, v: Array) -> Array:
        """[B, S, N / K, H] of one key-value head, k and v [B, S, H]."""
        seen = []
        for start in range(0, sequence, block):
            end = min(start + block, sequence)
            keys = k[:, :end, None], v[:, :end, None]
            mask = causal_mask(jnp.arange(start, end), end)
            seen.append(attend(q[:, start:end], *keys, mask))
        return jnp.concatenate(seen, axis=1)

    each_head = (jnp.moveaxis(x, 2, 0) for x in (groups, k, v))
    found = jax.lax.map(lambda head: attend_head(*head), tuple(each_head))
    return jnp.moveaxis(found, 0, 2).reshape(q.shape)


def attend_in_kernel(q: Array, k: Array, v: Array, block: int) -> Array:
    """Causal attention as `attend`, by JAX's kernel for TPUs, `block` positions a step.

    Its scores never leave the chip (Dao et al., "FlashAttention", NeurIPS 2022), and
    blocks above the diagonal are passed over, forwards and backwards. H, S and `block`
    are multiples of 128; a sequence of less than a block is `attend_in_blocks`'s.
    """
    heads, sequence = q.shape[2], q.shape[1]
    if sequence < block:
        return attend_in_blocks(q, k, v, block)
    names = (
        "block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv",
        "block_kv_dkv_compute", "block_q_dq", "block_kv_dq",
    )  # fmt: skip
    mask = splash_attention_mask.CausalMask((sequence, sequence))
    kernel = splash_attention_kernel.make_splash_mha(
        splash_attention_mask.MultiHeadMask([mask] * heads),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=splash_attention_kernel.BlockSizes(**dict.fromkeys(names, block)),
    )
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q * q.shape[-1] ** -0.5, k, v))
    return jnp.swapaxes(jax.vmap(kernel)(q, k, v), 1, 2)


CAUSAL: Mapping[str, Callable[[Array, Array, Array, int], Array]] = {
    "blocks": attend_in_blocks,
    "kernel": attend_in_kernel,
}
"""Ways to attend without all scores at once, by the name that configurations use."""


class Attention(nn.Module):
    """Projections around `attend`, of a sequence over itself.

    kv_heads: K, all heads if None.
    rotary: base of rotary positions, none if None.
    block: attend causally, so many queries at a time; all at once under `mask` if None.
    causal: a name in CAUSAL, how that is done.
    after_projection: a module applied to each of q, k, v [B, S, N, H], such as Primer's
        convolution; built once for each.
    """

    heads: int
    d_head: int
    kv_heads: int | None = None
    bias: bool = False
    rotary: float | None = None
    block: int | None = None
    causal: str = "blocks"
    after_projection: Callable[[], nn.Module] | None = None
    dtype: Any = None

    def project(self, name: str, x: Array, heads: int) -> Array:
        """`x` [B, S, D] as heads [B, S, heads, H]."""
        y = nn.DenseGeneral(
            (heads, self.d_head), use_bias=self.bias, dtype=self.dtype, name=name
        )(x)
        if self.after_projection is None:
            return y
        return self.after_projection()(y)

    @nn.compact
    def __call__(
        self,
        x: Array,
        mask: Array | None = None,
        *,
        positions: Array | None = None,
    ) -> Array:
        """Attention [B, S, D] of x [B, S, D] over itself.

        positions [S]: where x stands in its sequence, 0 to S - 1 if None.
        """
        kv_heads = self.kv_heads or self.heads
        q = self.project("q", x, self.heads)
        k = self.project("k", x, kv_heads)
        v = self.project("v", x, kv_heads)
        positions = jnp.arange(x.shape[1]) if positions is None else positions
        if self.rotary is not None:
            table = rotary_angles(positions, self.d_head, self.rotary)
            q, k = rotate(q, table).astype(q.dtype), rotate(k, table).astype(k.dtype)
        heard = (
            attend(q, k, v, mask)
            if self.block is None
            else CAUSAL[self.causal](q, k, v, self.block)
        )
        return nn.DenseGeneral(
            x.shape[-1], axis=(-2, -1), use_bias=self.bias, dtype=self.dtype, name="out"
        )(heard)


class Mlp(nn.Module):
    """Two layers with an activation between, or three where one gates (GLU).

    dropout: share of the hidden units that are dropped. alike: dims along which the same
        ones are.
    """

    d_ff: int
    activation: str = "gelu"
    gated: bool = False
    bias: bool = False
    dtype: Any = None
    dropout: float = 0.0
    alike: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., D] of x [..., D]."""

        def dense(width: int, name: str) -> nn.Dense:
            return nn.Dense(width, use_bias=self.bias, dtype=self.dtype, name=name)

        y = ACTIVATIONS[self.activation](dense(self.d_ff, "up")(x))
        if self.gated:
            y = y * dense(self.d_ff, "gate")(x)
        y = nn.Dropout(self.dropout, self.alike, deterministic=False)(y)
        return dense(x.shape[-1], "down")(y)


class Stack(nn.Module):
    """`layers` equal blocks, each built by `block()`, one after another.

    A block takes (x, *inputs) and returns x; `inputs` are the same for all.
    scan: one traced block whose weights are stacked on a first dim, or all unrolled.
    remat: one of REMAT.
    """

    block: Callable[[], nn.Module]
    layers: int
    scan: bool = True
    remat: str = "none"

    @nn.compact
    def __call__(self, x: Array, *inputs: Any) -> Array:
        """The residual stream after the last block."""

        def one(block: nn.Module, x: Array) -> Array:
            return block(x, *inputs)

        if self.remat != "none":
            one = nn.remat(one, policy=REMAT[self.remat], prevent_cse=not self.scan)
        if not self.scan:
            for layer in range(self.layers):
                x = one(self.block(name=f"layer_{layer}"), x)
            return x
        scanned = nn.scan(
            lambda block, x, _: (one(block, x), None),
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            length=self.layers,
        )
        return scanned(self.block(name="layers"), x, None)[0]

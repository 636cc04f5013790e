"""A classifier of images that attends within windows, shifted in every other block.

Written with flax and optax. Letters: B batch, R, C rows and columns of features,
W side of a window, P = W * W positions in it, G windows of a batch, D features,
N heads, H features of a head.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax import Array

from benchmarks.strangers.step import Target, whole

WINDOW = 7
CLASSES = 1000
SMOOTHING, MIXUP = 0.1, 0.8
SLOW = 1e-4

# -- the model ---------------------------------------------------------------------


def windows_of(x: Array) -> Array:
    """Windows [G, P, D] of features x [B, R, C, D]."""
    batch, rows, columns, width = x.shape
    split = (batch, rows // WINDOW, WINDOW, columns // WINDOW, WINDOW, width)
    return x.reshape(split).swapaxes(2, 3).reshape(-1, WINDOW * WINDOW, width)


def whole_of(windows: Array, rows: int, columns: int) -> Array:
    """Features [B, R, C, D] of their windows [G, P, D]."""
    width = windows.shape[-1]
    split = (-1, rows // WINDOW, columns // WINDOW, WINDOW, WINDOW, width)
    return windows.reshape(split).swapaxes(2, 3).reshape(-1, rows, columns, width)


def relative_places() -> np.ndarray:
    """Of each two positions of a window [P, P], the row of the table of biases."""
    row, column = np.divmod(np.arange(WINDOW * WINDOW), WINDOW)
    rows = row[:, None] - row[None, :] + WINDOW - 1
    columns = column[:, None] - column[None, :] + WINDOW - 1
    return rows * (2 * WINDOW - 1) + columns


def shift_mask(side: int, shift: int) -> np.ndarray:
    """What [windows of an image, P, P] keeps apart what a shift has brought together."""
    part = np.zeros(side, np.int32)
    part[side - WINDOW : side - shift], part[side - shift :] = 1, 2
    parts = (3 * part[:, None] + part[None, :]).reshape(
        side // WINDOW, WINDOW, side // WINDOW, WINDOW
    )
    parts = parts.swapaxes(1, 2).reshape(-1, WINDOW * WINDOW)
    return np.where(parts[:, :, None] == parts[:, None, :], 0.0, -100.0)


class WindowAttention(nn.Module):
    heads: int
    dtype: Any

    @nn.compact
    def __call__(self, x: Array, mask: np.ndarray | None) -> Array:
        """[G, P, D] of windows x [G, P, D]; mask [windows of an image, P, P]."""
        count, places, width = x.shape
        qkv = nn.Dense(3 * width, dtype=self.dtype, name="qkv")(x)
        qkv = qkv.reshape(count, places, 3, self.heads, width // self.heads)
        q, k, v = jnp.moveaxis(qkv, 2, 0)
        q = q * (width // self.heads) ** -0.5
        scores = jnp.einsum("gqnh,gknh->gnqk", q, k).astype(jnp.float32)
        table = self.param(
            "bias", nn.initializers.truncated_normal(0.02),
            ((2 * WINDOW - 1) ** 2, self.heads),
        )  # fmt: skip
        bias = table[relative_places().ravel()].reshape(places, places, -1)
        scores = scores + jnp.transpose(bias, (2, 0, 1))
        if mask is not None:
            scores = scores.reshape(-1, len(mask), *scores.shape[1:])
            scores = scores + mask[:, None].astype(np.float32)
            scores = scores.reshape(count, *scores.shape[2:])
        shares = nn.softmax(scores).astype(self.dtype)
        mixed = jnp.einsum("gnqk,gknh->gqnh", shares, v).reshape(x.shape)
        return nn.Dense(width, dtype=self.dtype, name="out")(mixed)


class Block(nn.Module):
    heads: int
    shift: int
    drop: float
    dtype: Any

    def kept(self, x: Array, is_training: bool) -> Array:
        """`x`, or nothing of it for some images."""
        if not is_training or self.drop == 0:
            return x
        key = self.make_rng("dropout")
        is_kept = jax.random.bernoulli(key, 1 - self.drop, (len(x), 1, 1, 1))
        return jnp.where(is_kept, x / (1 - self.drop), 0)

    @nn.compact
    def __call__(self, x: Array, is_training: bool) -> Array:
        """[B, R, C, D] of x [B, R, C, D]."""
        _, rows, columns, width = x.shape
        shift = self.shift if rows > WINDOW else 0
        y = nn.LayerNorm(dtype=self.dtype)(x)
        mask = None
        if shift:
            y = jnp.roll(y, (-shift, -shift), axis=(1, 2))
            mask = shift_mask(rows, shift)
        y = WindowAttention(self.heads, self.dtype)(windows_of(y), mask)
        y = whole_of(y, rows, columns)
        if shift:
            y = jnp.roll(y, (shift, shift), axis=(1, 2))
        x = x + self.kept(y, is_training)
        y = nn.LayerNorm(dtype=self.dtype)(x)
        y = nn.gelu(nn.Dense(4 * width, dtype=self.dtype)(y), approximate=False)
        y = nn.Dense(width, dtype=self.dtype)(y)
        return x + self.kept(y, is_training)


class Merging(nn.Module):
    dtype: Any

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, R / 2, C / 2, 2 D] of x [B, R, C, D]: four neighbours in one."""
        corners = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        x = nn.LayerNorm(dtype=self.dtype)(jnp.concatenate(corners, axis=-1))
        return nn.Dense(x.shape[-1] // 2, use_bias=False, dtype=self.dtype)(x)


class Swin(nn.Module):
    depths: tuple[int, ...] = (2, 2, 6, 2)
    width: int = 96
    drop: float = 0.2
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, images: Array, is_training: bool) -> Array:
        """Scores [B, 1000] of images [B, side, side, 3]."""
        x = nn.Conv(self.width, (4, 4), strides=(4, 4), dtype=self.dtype)(images)
        x = nn.LayerNorm(dtype=self.dtype)(x)
        drops = iter(np.linspace(0, self.drop, sum(self.depths)).tolist())
        for stage, depth in enumerate(self.depths):
            if stage:
                x = Merging(self.dtype)(x)
            for i in range(depth):
                shift = WINDOW // 2 if i % 2 else 0
                heads = x.shape[-1] // 32
                x = Block(heads, shift, next(drops), self.dtype)(x, is_training)
        x = nn.LayerNorm(dtype=self.dtype)(x).mean(axis=(1, 2))
        return nn.Dense(CLASSES, dtype=jnp.float32)(x)


# -- the step ----------------------------------------------------------------------


class State(train_state.TrainState):
    """Also the parameters' slow mean, and a key to split."""

    slow: Any
    key: Array


def swin_step(state: State, batch: dict[str, Array]) -> tuple[State, Any]:
    """New state and what is told, of images [B, side, side, 3] of bytes, labels [B].

    Each image is mixed with the one as far from the other end of the batch.
    """
    key, mix_key, drop_key = jax.random.split(state.key, 3)
    images = batch["images"].astype(jnp.float32) / 127.5 - 1
    labels = jax.nn.one_hot(batch["labels"], CLASSES)
    labels = optax.smooth_labels(labels, SMOOTHING)
    share = jax.random.beta(mix_key, MIXUP, MIXUP)
    images = share * images + (1 - share) * images[::-1]
    labels = share * labels + (1 - share) * labels[::-1]

    def loss_fn(params: Any) -> tuple[Array, Array]:
        rngs = {"dropout": drop_key}
        scores = state.apply_fn({"params": params}, images, True, rngs=rngs)
        return optax.softmax_cross_entropy(scores, labels).mean(), scores

    (loss, scores), gradients = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=gradients)
    slow = optax.incremental_update(state.params, state.slow, SLOW)
    right = jnp.mean(jnp.argmax(scores, -1) == jnp.argmax(labels, -1))
    told = {"loss": loss, "right": right, "norm": optax.tree.norm(gradients)}
    return state.replace(slow=slow, key=key), told


def swin(batch: int = 512, side: int = 224) -> Target:
    """Liu et al., 2021, the tiny one: AdamW that spares vectors, clipped by 5."""
    model = Swin()

    def decayed(params: Any) -> Any:
        return jax.tree.map(lambda x: x.ndim > 1, params)

    rate = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 6_000, 100_000, 1e-5)
    optimizer = optax.chain(
        optax.clip_by_global_norm(5.0),
        optax.adamw(rate, weight_decay=0.05, mask=decayed),
    )

    def start(key: Array) -> State:
        params = model.init(key, jnp.zeros((1, side, side, 3)), False)["params"]
        return State.create(
            apply_fn=model.apply, params=params, tx=optimizer, slow=params, key=key
        )

    state = jax.eval_shape(start, jax.eval_shape(lambda: jax.random.PRNGKey(0)))
    images = jax.ShapeDtypeStruct((batch, side, side, 3), jnp.uint8)
    return swin_step, (state, {"images": images, "labels": whole(batch)})

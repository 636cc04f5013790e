"""Pieces: the ops of which subgraphs are synthesised, over any dims of a value.

A piece is data. `WEIGHTS` has the trainable arrays of each kind, and `APPLY` the JAX
function that computes it. No piece mixes examples with trainable weights: the batch dim
is never among those that a piece contracts or slides over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """A trainable array: normal numbers with deviation `std` around `mean`."""

    name: str
    shape: Shape
    std: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True, slots=True)
class SubgraphPiece:
    """One op of a synthesised subgraph.

    kind: a key of `APPLY`.
    feature: the dim whose positions are channels.
    space: the dims over which windows slide or positions attend.
    batch: the dim of the examples.
    size: extent of the result's feature dim, or of the dim that the piece makes.
    window, stride: of convolutions and pools.
    groups: of the channels of a convolution.
    """

    kind: str
    feature: int = 0
    space: tuple[int, ...] = ()
    batch: int = 0
    size: int = 0
    window: int = 1
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        shown = {"size": 0, "window": 1, "stride": 1, "groups": 1}
        parts = [
            f"{n} {getattr(self, n)}" for n, d in shown.items() if getattr(self, n) != d
        ]
        return f"{self.kind}({', '.join(parts)})"


def _fan(name: str, shape: Shape, fan_in: int) -> WeightSpec:
    """Normal numbers that keep the variance through a rectifier (He et al., 2015)."""
    return WeightSpec(name, shape, math.sqrt(2 / max(fan_in, 1)))


def _dense_weights(piece: SubgraphPiece, shape: Shape) -> tuple[WeightSpec, ...]:
    n = shape[piece.feature]
    return _fan("kernel", (n, piece.size), n), WeightSpec("bias", (piece.size,))


def _conv_weights(piece: SubgraphPiece, shape: Shape) -> tuple[WeightSpec, ...]:
    inside = shape[piece.feature] // piece.groups
    window = (piece.window,) * len(piece.space)
    fan_in = inside * math.prod(window)
    return (_fan("kernel", (piece.size, inside, *window), fan_in),)


def _norm_weights(piece: SubgraphPiece, shape: Shape) -> tuple[WeightSpec, ...]:
    n = shape[piece.feature]
    return WeightSpec("scale", (n,), mean=1.0), WeightSpec("bias", (n,))


def _gate_weights(piece: SubgraphPiece, shape: Shape) -> tuple[WeightSpec, ...]:
    n, few = shape[piece.feature], piece.size
    return (
        _fan("squeeze", (n, few), n),
        WeightSpec("squeeze_bias", (few,)),
        _fan("excite", (few, n), few),
        WeightSpec("excite_bias", (n,)),
    )


def _attention_weights(piece: SubgraphPiece, shape: Shape) -> tuple[WeightSpec, ...]:
    n = shape[piece.feature]
    std = math.sqrt(1 / n)
    inside = WeightSpec("inside", (n, 3 * piece.size), std)
    return inside, WeightSpec("outside", (piece.size, n), std)


WEIGHTS: Mapping[str, Callable[[SubgraphPiece, Shape], tuple[WeightSpec, ...]]] = {
    "dense": _dense_weights,
    "conv": _conv_weights,
    "batch_norm": _norm_weights,
    "layer_norm": _norm_weights,
    "gate": _gate_weights,
    "attention": _attention_weights,
}
"""The trainable arrays of the kinds that have some."""


def weights_of(piece: SubgraphPiece, shape: Shape) -> tuple[WeightSpec, ...]:
    """The trainable arrays of a piece whose first operand has this shape."""
    make = WEIGHTS.get(piece.kind)
    return () if make is None else make(piece, shape)


# -- what each kind computes --------------------------------------------------------


def _along(x: Array, vector: Array, dim: int) -> Array:
    """A vector as an array that broadcasts along `dim` of `x`."""
    shape = [1] * x.ndim
    shape[dim] = vector.shape[0]
    return vector.reshape(shape)


def _dense(piece: SubgraphPiece, weights: Sequence[Array], x: Array) -> Array:
    kernel, bias = weights
    y = jnp.moveaxis(
        jnp.tensordot(x, kernel, ((piece.feature,), (0,))), -1, piece.feature
    )
    return y + _along(y, bias, piece.feature)


def _conv(piece: SubgraphPiece, weights: Sequence[Array], x: Array) -> Array:
    places = (piece.batch, piece.feature, *piece.space)
    rank = len(places)
    return lax.conv_general_dilated(
        x,
        weights[0],
        (piece.stride,) * len(piece.space),
        "SAME",
        feature_group_count=piece.groups,
        dimension_numbers=lax.ConvDimensionNumbers(places, tuple(range(rank)), places),
    )


def _pool(piece: SubgraphPiece, weights: Sequence[Array], x: Array) -> Array:
    del weights
    sizes = tuple(piece.window if d in piece.space else 1 for d in range(x.ndim))
    strides = tuple(piece.stride if d in piece.space else 1 for d in range(x.ndim))
    if piece.kind == "max_pool":
        return lax.reduce_window(x, -jnp.inf, lax.max, sizes, strides, "SAME")
    total = lax.reduce_window(x, 0.0, lax.add, sizes, strides, "SAME")
    return total / math.prod(sizes)


def _norm(piece: SubgraphPiece, weights: Sequence[Array], x: Array) -> Array:
    """`x` with mean 0 and variance 1, over examples and space or over features."""
    by_batch = piece.kind == "batch_norm"
    over = tuple(d for d in range(x.ndim) if (d != piece.feature) == by_batch)
    centred = x - x.mean(over, keepdims=True)
    y = centred * lax.rsqrt(jnp.square(centred).mean(over, keepdims=True) + 1e-3)
    scale, bias = (_along(x, w, piece.feature) for w in weights)
    return y * scale + bias


def _gate(piece: SubgraphPiece, weights: Sequence[Array], x: Array) -> Array:
    """Every channel weighed by what all channels are on average (Hu et al., 2018)."""
    squeeze, squeeze_bias, excite, excite_bias = weights
    mean = x.mean(piece.space)
    channel = int(piece.feature > piece.batch)
    mean = jnp.moveaxis(mean, channel, 1)
    few = jax.nn.relu(mean @ squeeze + squeeze_bias)
    share = jax.nn.sigmoid(few @ excite + excite_bias)
    return x * jnp.expand_dims(jnp.moveaxis(share, 1, channel), piece.space)


def _attention(piece: SubgraphPiece, weights: Sequence[Array], x: Array) -> Array:
    """Softmax attention among all positions of the space, with `groups` heads."""
    order = (piece.batch, *piece.space, piece.feature)
    y = x.transpose(order)
    inside, outside = weights
    batch, heads, size = y.shape[0], piece.groups, piece.size // piece.groups
    q, k, v = jnp.split(y.reshape(batch, -1, y.shape[-1]) @ inside, 3, axis=-1)
    q, k, v = (a.reshape(batch, -1, heads, size) for a in (q, k, v))
    scores = jnp.einsum("bnhd,bmhd->bhnm", q, k) * size**-0.5
    z = jnp.einsum("bhnm,bmhd->bnhd", jax.nn.softmax(scores), v)
    z = z.reshape(batch, -1, piece.size) @ outside
    back = tuple(order.index(d) for d in range(x.ndim))
    return z.reshape(y.shape).transpose(back)


def _mean(piece: SubgraphPiece, weights: Sequence[Array], x: Array) -> Array:
    del weights
    return x.mean(piece.space)


def _repeat(piece: SubgraphPiece, weights: Sequence[Array], x: Array) -> Array:
    """A new dim at `feature`, along which `x` is repeated `size` times."""
    del weights
    y = jnp.expand_dims(x, piece.feature)
    shape = (*y.shape[: piece.feature], piece.size, *y.shape[piece.feature + 1 :])
    return jnp.broadcast_to(y, shape)


def _upsample(piece: SubgraphPiece, weights: Sequence[Array], x: Array) -> Array:
    del weights
    for dim in piece.space:
        x = jnp.repeat(x, piece.stride, axis=dim)
    return x


def _elementwise(fn: Callable[..., Array]) -> Callable[..., Array]:
    return lambda piece, weights, *operands: fn(*operands)


APPLY: Mapping[str, Callable[..., Any]] = {
    "dense": _dense,
    "conv": _conv,
    "average_pool": _pool,
    "max_pool": _pool,
    "batch_norm": _norm,
    "layer_norm": _norm,
    "gate": _gate,
    "attention": _attention,
    "mean": _mean,
    "repeat": _repeat,
    "upsample": _upsample,
    "relu": _elementwise(jax.nn.relu),
    "silu": _elementwise(jax.nn.silu),
    "gelu": _elementwise(jax.nn.gelu),
    "sigmoid": _elementwise(jax.nn.sigmoid),
    "add": _elementwise(jnp.add),
    "mul": _elementwise(jnp.multiply),
}
"""What each kind computes, from a piece, its weights and its operands."""

ACTIVATIONS = ("relu", "silu", "gelu", "sigmoid")

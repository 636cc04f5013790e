"""Stacks of dilated causal convolutions with gates: the net of WaveNet and its student.

Letters: B batch, T samples, F frames, C features of a frame, K samples of a filter,
R channels, G units of a gate, U skip channels, S stacks.
"""

from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from zoo.workload import check_numbers


@dataclass(frozen=True, slots=True)
class Net:
    """The sizes of a stack of dilated convolutions; `skip` is None for no way out."""

    stacks: int
    layers: int
    channels: int
    gate: int
    skip: int | None
    kernel: int = 3

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.kernel < 2:
            raise ValueError(
                f"a filter of {self.kernel} samples hears no past: 2 or more"
            )

    @property
    def dilations(self) -> tuple[int, ...]:
        """Of the layers of a stack: 1, 2, 4, ..."""
        return tuple(2**i for i in range(self.layers))

    @property
    def receptive_field(self) -> int:
        """How many inputs an output depends on."""
        return self.kernel + self.stacks * (self.kernel - 1) * sum(self.dilations)


def delay(x: Array, samples: int) -> Array:
    """`x` [B, T, ...] later by some samples, after silence."""
    late = jnp.pad(x, [(0, 0), (samples, 0)] + [(0, 0)] * (x.ndim - 2))
    return late[:, : x.shape[1]]


@partial(jax.checkpoint, static_argnums=2)  # else the K copies are kept for gradients
def causal_conv(x: Array, kernel: Array, dilation: int) -> Array:
    """`x` [B, T, R] filtered by `kernel` [K, R, G]; nothing hears what comes later.

    A product with K delayed copies, side by side: on a CPU the gradients of a dilated
    convolution take five times as long.
    """
    size, channels, width = kernel.shape
    copies = [delay(x, age * dilation) for age in reversed(range(size))]
    return jnp.concatenate(copies, axis=-1) @ kernel.reshape(size * channels, width)


def gated(filtered: Array, gate: Array) -> Array:
    """The activation unit of PixelCNN (van den Oord et al., NeurIPS 2016)."""
    return jnp.tanh(filtered) * jax.nn.sigmoid(gate)


class Weights(NamedTuple):
    """Weights of layers; leading dims are [S, layers], [layers] in a stack, or none.

    filter, gate: [K, R, G]; *_heard: projections of the features [C, G]; *_bias: [G].
    on: back to the channels [G, R]; out: to the skip channels [G, U] or None.
    """

    filter: Array
    gate: Array
    filter_heard: Array
    gate_heard: Array
    filter_bias: Array
    gate_bias: Array
    on: Array
    out: Array | None


def hear(weights: Weights, features: Array) -> tuple[Array, Array]:
    """What a layer's filter and gate [B, F, G] make of the features [B, F, C]."""
    return (
        features @ weights.filter_heard + weights.filter_bias,
        features @ weights.gate_heard + weights.gate_bias,
    )


def layer(weights: Weights, x: Array, features: Array, dilation: int) -> Any:
    """The channels [B, T, R] after a layer, and its skip output [B, T, U] or None."""
    hop = x.shape[1] // features.shape[1]
    filter_heard, gate_heard = (_repeat(h, hop) for h in hear(weights, features))
    z = gated(
        causal_conv(x, weights.filter, dilation) + filter_heard,
        causal_conv(x, weights.gate, dilation) + gate_heard,
    )
    return x + z @ weights.on, None if weights.out is None else z @ weights.out


def _repeat(frames: Array, hop: int) -> Array:
    """Frames [B, F, G] as samples [B, T, G]."""
    batch, count, width = frames.shape
    samples = jnp.broadcast_to(frames[:, :, None], (batch, count, hop, width))
    return samples.reshape(batch, count * hop, width)


def layers_of(weights: Weights) -> list[Weights]:
    """The layers of a stack, one by one."""
    parts = [repeat(None) if part is None else jnp.unstack(part) for part in weights]
    return [Weights(*each) for each in zip(*parts, strict=False)]


class Trunk(nn.Module):
    """The first filter and all stacks, scanned: they have the same shapes."""

    net: Net

    @nn.compact
    def __call__(self, audio: Array, features: Array) -> tuple[Array, Any]:
        """Channels [B, T, R] and skips [B, T, U] or None, each of this and past samples."""
        net = self.net
        if audio.shape[1] % features.shape[1]:
            raise ValueError(
                f"{audio.shape[1]} samples are not of whole frames: "
                f"there are features of {features.shape[1]}"
            )
        first = self.param("first", _uniform(0, 2), (net.kernel, 1, net.channels))

        def stack(carry: tuple[Array, Any], weights: Weights) -> Any:
            x, skip = carry
            for one, dilation in zip(layers_of(weights), net.dilations, strict=True):
                x, out = layer(one, x, features, dilation)
                skip = None if out is None else skip + out
            return (x, skip), None

        x = causal_conv(audio[..., None], first, 1)
        skip = None if net.skip is None else jnp.zeros((*audio.shape, net.skip))
        return jax.lax.scan(stack, (x, skip), self._weights(features.shape[-1]))[0]

    def _weights(self, features: int) -> Weights:
        net = self.net
        shapes = {
            "filter": (net.kernel, net.channels, net.gate),
            "gate": (net.kernel, net.channels, net.gate),
            "filter_heard": (features, net.gate),
            "gate_heard": (features, net.gate),
            "on": (net.gate, net.channels),
        } | ({} if net.skip is None else {"out": (net.gate, net.skip)})
        both = (net.stacks, net.layers)
        made = {
            name: self.param(name, _uniform(2, len(shape) - 1), (*both, *shape))
            for name, shape in shapes.items()
        }
        for name in ("filter_bias", "gate_bias"):
            made[name] = self.param(name, nn.initializers.zeros, (*both, net.gate))
        return Weights(**{"out": None} | made)


def _uniform(stacked: int, inputs: int) -> nn.initializers.Initializer:
    """Variance 1 / fan-in over `inputs` dims after `stacked` ones of separate weights.

    Not normal: the inverse error function takes long to compile.
    """
    return nn.initializers.lecun_uniform(
        in_axis=range(stacked, stacked + inputs), batch_axis=range(stacked)
    )


class Head(nn.Module):
    """Two layers on the way out of a net; `scale`: variance of the first outputs."""

    hidden: int
    outputs: int
    scale: float = 1.0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.Dense(self.hidden, kernel_init=_uniform(0, 1), name="hidden")(nn.relu(x))
        x = nn.relu(x)
        init = nn.initializers.variance_scaling(self.scale, "fan_in", "uniform")
        return nn.Dense(self.outputs, kernel_init=init, name="outputs")(x)

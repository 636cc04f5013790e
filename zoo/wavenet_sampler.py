"""Sampling from a WaveNet: one sample at a time, each layer's past kept in a queue.

T. Le Paine et al., "Fast Wavenet Generation Algorithm", 2016: a layer of dilation d reads
its inputs of d, 2 d, ... samples ago from a ring of (K - 1) d of them, so that a sample
costs one product for each layer, whatever the receptive field. Work that does not depend on
earlier samples is done for all samples at once: noise, and the layers' projections of the
features.

Letters: B batch, T samples, F frames, K samples of a filter, R channels, G gate units.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from zoo.dilated import Weights, gated, hear, layers_of
from zoo.logistics import Noise, draw
from zoo.wavenet import Config, WaveNet


class LayerWeights(NamedTuple):
    """A layer's weights, in the order of their use for one sample.

    taps: filter and gate [K R, 2 G], the oldest input first; ways: on and out [G, R + U].
    heard: the addend of the features to filter and gate [F, B, 2 G].
    """

    taps: Array
    ways: Array
    heard: Array


def _in_order(config: Config, params: dict, features: Array) -> list[LayerWeights]:
    trunk = {"out": None} | params["trunk"]
    stacked = Weights(*(trunk[name] for name in Weights._fields))
    found = []
    for own in (x for stack in layers_of(stacked) for x in layers_of(stack)):
        taps = jnp.concatenate([own.filter, own.gate], axis=-1)
        taps = taps.reshape(-1, 2 * config.net.gate)
        ways = jnp.concatenate([own.on, own.out], axis=-1)
        heard = jnp.concatenate(hear(own, features), axis=-1).swapaxes(0, 1)
        found.append(LayerWeights(taps, ways, heard))
    return found


def generate(config: Config, params: dict, features: Array, noise: Noise) -> Array:
    """Audio [B, T] for `features` [B, F, C] and noise for each of its samples [B, T]."""
    net, batch = config.net, len(features)
    samples = noise.logistic.shape[1]
    if samples != features.shape[1] * config.hop:
        raise ValueError(
            f"noise for {samples} samples, wanted {features.shape[1]} frames of "
            f"{config.hop}"
        )
    layers = _in_order(config, params, features)
    rings = [(net.kernel - 1) * d for d in net.dilations] * net.stacks
    first = params["trunk"]["first"][:, 0]

    def step(carry: tuple[Array, list[Array]], now: tuple[Array, Noise]) -> Any:
        recent, queues = carry
        t, drawn = now
        frame = t // config.hop
        x, skip, kept = recent @ first, 0.0, []
        for weights, queue, ring in zip(layers, queues, rings, strict=True):
            dilation = ring // (net.kernel - 1)
            ages = range(ring, 0, -dilation)
            inputs = [queue[(t - age) % ring] for age in ages] + [x]
            both = (
                jnp.concatenate(inputs, axis=-1) @ weights.taps + weights.heard[frame]
            )
            z = gated(both[:, : net.gate], both[:, net.gate :]) @ weights.ways
            kept.append(queue.at[t % ring].set(x))
            x, skip = x + z[:, : net.channels], skip + z[:, net.channels :]
        mixture = WaveNet(config).apply({"params": params}, skip, method="read")
        sample = draw(mixture, drawn)
        return (jnp.append(recent[:, 1:], sample[:, None], axis=1), kept), sample

    silence = jnp.zeros((batch, net.kernel))
    empty = [jnp.zeros((ring, batch, net.channels)) for ring in rings]
    times = jnp.arange(samples)
    by_time = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), noise)
    return jax.lax.scan(step, (silence, empty), (times, by_time))[1].T

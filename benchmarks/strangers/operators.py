"""A neural operator that foretells a flow: products of waves, step after step.

Written with equinox for one flow, then mapped over many; all in float32. Letters:
B batch, T steps of time, C channels, R rows and columns of the grid, M waves kept.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from benchmarks.strangers.step import Target, shape, whole

HISTORY = 8
WIDTH = 64
WAVES = 24
LAYERS = 4


class Spectral(eqx.Module):
    """A product of each wave's channels [C] with a matrix of its own."""

    real: Array
    imaginary: Array

    def __init__(self, key: Array):
        dims = WIDTH, WIDTH, 2 * WAVES, WAVES
        real, imaginary = jax.random.normal(key, (2, *dims)) / WIDTH
        self.real, self.imaginary = real, imaginary

    def __call__(self, x: Array) -> Array:
        """[C, R, R] of x [C, R, R]; rows' waves of both signs, columns' of one."""
        waves = jnp.fft.rfft2(x, norm="ortho")
        low, high = waves[:, :WAVES, :WAVES], waves[:, -WAVES:, :WAVES]
        kept = jnp.concatenate([low, high], axis=1)
        matrix = lax.complex(self.real, self.imaginary)
        kept = jnp.einsum("ixy,ioxy->oxy", kept, matrix)
        waves = jnp.zeros_like(waves)
        waves = waves.at[:, :WAVES, :WAVES].set(kept[:, :WAVES])
        waves = waves.at[:, -WAVES:, :WAVES].set(kept[:, WAVES:])
        return jnp.fft.irfft2(waves, s=x.shape[1:], norm="ortho")


class Layer(eqx.Module):
    spectral: Spectral
    local: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm
    mlp: list[eqx.nn.Conv2d]

    def __init__(self, key: Array):
        keys = jax.random.split(key, 4)
        self.spectral = Spectral(keys[0])
        self.local = eqx.nn.Conv2d(WIDTH, WIDTH, 1, key=keys[1])
        self.norm = eqx.nn.GroupNorm(8, WIDTH)
        self.mlp = [
            eqx.nn.Conv2d(WIDTH, 2 * WIDTH, 1, key=keys[2]),
            eqx.nn.Conv2d(2 * WIDTH, WIDTH, 1, key=keys[3]),
        ]

    def __call__(self, x: Array) -> Array:
        """[C, R, R] of x [C, R, R]."""
        y = jax.nn.gelu(self.spectral(self.norm(x)) + self.local(x))
        up, down = self.mlp
        return x + down(jax.nn.gelu(up(y)))


class Operator(eqx.Module):
    lift: eqx.nn.Conv2d
    layers: list[Layer]
    inner: eqx.nn.Conv2d
    last: eqx.nn.Conv2d

    def __init__(self, key: Array):
        keys = jax.random.split(key, LAYERS + 3)
        self.lift = eqx.nn.Conv2d(HISTORY + 2, WIDTH, 1, key=keys[0])
        self.inner = eqx.nn.Conv2d(WIDTH, 2 * WIDTH, 1, key=keys[1])
        self.last = eqx.nn.Conv2d(2 * WIDTH, 1, 1, key=keys[2])
        self.layers = [Layer(key) for key in keys[3:]]

    def __call__(self, past: Array) -> Array:
        """The next vorticity [R, R] after those of the past [HISTORY, R, R]."""
        places = jnp.linspace(0, 1, past.shape[1])
        grid = jnp.stack(jnp.meshgrid(places, places, indexing="ij"))
        x = self.lift(jnp.concatenate([past, grid]))
        for layer in self.layers:
            x = layer(x)
        return past[-1] + self.last(jax.nn.gelu(self.inner(x)))[0]


def foretold(model: Operator, past: Array, steps: int) -> Array:
    """What comes after the past [HISTORY, R, R]: [T, R, R], each made of the others."""

    @jax.checkpoint
    def step(past: Array, _: None) -> tuple[Array, Array]:
        later = model(past)
        return jnp.concatenate([past[1:], later[None]]), later

    return lax.scan(step, past, None, length=steps)[1]


def flow_loss(params: Operator, static: Operator, flows: Array) -> Array:
    """Mean over flows [B, HISTORY + T, R, R] of how far from what came, for its size."""
    model = eqx.combine(params, static)
    past, later = flows[:, :HISTORY], flows[:, HISTORY:]
    told = jax.vmap(lambda x: foretold(model, x, later.shape[1]))(past)
    error = jnp.sum(jnp.square(told - later), axis=(2, 3))
    size = jnp.sum(jnp.square(later), axis=(2, 3))
    return jnp.mean(jnp.sqrt(error / (size + 1e-6) + 1e-12))


optimizer = optax.apply_if_finite(
    optax.chain(
        optax.adaptive_grad_clip(0.02),
        optax.scale_by_belief(),
        optax.add_decayed_weights(1e-4),
        optax.scale_by_learning_rate(
            optax.cosine_onecycle_schedule(50_000, 1e-3, pct_start=0.2)
        ),
    ),
    max_consecutive_errors=5,
)


def fno(batch: int = 64, side: int = 256, steps: int = 8) -> Target:
    """Li et al., 2021, in two dimensions: a rollout, each step of it made again."""
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    model = eqx.filter_eval_shape(Operator, key)
    params, static = eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def step(state: Any, flows: Array) -> Any:
        params, kept, slow, count = state
        loss, gradients = jax.value_and_grad(flow_loss)(params, static, flows)
        updates, kept = optimizer.update(gradients, kept, params)
        params = eqx.apply_updates(params, updates)
        decay = jnp.minimum(0.999, (1 + count) / (10 + count))
        slow = optax.incremental_update(params, slow, 1 - decay)
        return (params, kept, slow, count + 1), (loss, optax.tree.norm(gradients))

    state = params, jax.eval_shape(optimizer.init, params), params, whole()
    return step, (state, shape(batch, HISTORY + steps, side, side))

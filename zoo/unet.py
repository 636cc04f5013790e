"""The network of a diffusion model: a U-Net that predicts noise.

J. Ho, A. Jain, P. Abbeel, "Denoising Diffusion Probabilistic Models", NeurIPS 2020; the
process itself is in `zoo.diffusion`. `ho_cifar10` and `ho_256` are sizes of that paper.

`partir` is the UNet of PartIR (Alabed et al., ASPLOS 2025). Its papers state: 9 residual
blocks down, 12 up, between them 2 and one attention layer of 16 heads, batches of 32
(automap, Schaarschmidt et al., 2021), Adam. Assumed: Ho's blocks on three levels, images
of 32 x 32, and 200 million parameters: so many fit the 2.1 GB by which PartIR's estimate
falls when 8 devices cut parameters and Adam's state.

Left out: dropout, and a moving average of the weights.

Letters: B batch, S height and width, C channels, E features of the time, T steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import meshwright as mw
from zoo import diffusion
from zoo.attention import Attention
from zoo.images import made_batches
from zoo.training import State, new_state, train_step_of
from zoo.workload import Curve, Workload, check_numbers, published_parameters, sized

LAST_SCALE = 1e-2
"""Variance of weights that Ho et al. start at zero, where others would not learn yet."""

INIT_KEY = "unsafe_rbg"
"""Draws first weights: XLA compiles it in a sixth of the time that threefry takes."""


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a net, of its images and of its batch.

    multipliers: channels of each level, in units of `channels`; each level halves S.
    blocks: residual blocks of a level going down; going up there is one more.
    attention: image sizes at which attention follows each residual block.
    groups: of the group norms.
    steps: T, between image and noise.
    """

    size: int
    channels: int
    multipliers: tuple[int, ...]
    blocks: int
    heads: int
    batch: int
    attention: tuple[int, ...] = ()
    groups: int = 32
    steps: int = diffusion.HO_STEPS
    rate: float = 2e-4

    def __post_init__(self) -> None:
        check_numbers(self)
        halvings = len(self.multipliers) - 1
        if halvings < 0 or self.size % 2**halvings:
            raise ValueError(
                f"images of {self.size} pixels cannot be halved {halvings} times, once "
                f"between each of {len(self.multipliers)} levels"
            )
        if self.channels % self.groups:
            what = f"{self.groups} groups of a norm"
            raise ValueError(f"{what} do not divide {self.channels} channels")
        levels = {self.size >> i: m for i, m in enumerate(self.multipliers)}
        for size in (*self.attention, self.size >> halvings):
            if size not in levels:
                raise ValueError(f"no level has size {size}; there are {[*levels]}")
            if self.channels * levels[size] % self.heads:
                what = f"the {self.channels * levels[size]} channels at size {size}"
                raise ValueError(f"{self.heads} heads do not divide {what}")


SIZES = {
    "partir": Config(32, 256, (1, 2, 3), 3, heads=16, batch=32),
    "ho_cifar10": Config(32, 128, (1, 2, 2, 2), 2, heads=1, batch=128, attention=(16,)),
    "ho_256": Config(
        256, 128, (1, 1, 2, 2, 4, 4), 2, heads=1, batch=64, attention=(16,), rate=2e-5
    ),
}
TINY = Config(16, 16, (1, 2), 1, heads=4, batch=32, groups=8, steps=100, rate=2e-3)

# -- the net -----------------------------------------------------------------------


def _conv(channels: int, name: str, stride: int = 1, is_last: bool = False) -> nn.Conv:
    """A convolution 3 x 3; the last of a branch starts near zero and adds little."""
    scale = LAST_SCALE if is_last else 1.0
    init = nn.initializers.variance_scaling(scale, "fan_avg", "uniform")
    return nn.Conv(channels, (3, 3), strides=stride, kernel_init=init, name=name)


class ResidualBlock(nn.Module):
    """Two convolutions that hear the time between them, and a way around."""

    channels: int
    groups: int

    @nn.compact
    def __call__(self, x: Array, time: Array) -> Array:
        """[B, S, S, channels] of x [B, S, S, C] and time [B, E]."""
        y = nn.silu(nn.GroupNorm(self.groups, name="norm_1")(x))
        y = _conv(self.channels, "conv_1")(y)
        y = y + nn.Dense(self.channels, name="time")(nn.silu(time))[:, None, None]
        y = nn.silu(nn.GroupNorm(self.groups, name="norm_2")(y))
        y = _conv(self.channels, "conv_2", is_last=True)(y)
        if x.shape[-1] != self.channels:
            x = nn.Dense(self.channels, name="around")(x)
        return x + y


class AttentionBlock(nn.Module):
    """Every pixel attends to all."""

    heads: int
    groups: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, S, S, C] of x [B, S, S, C]."""
        y = nn.GroupNorm(self.groups, name="norm")(x)
        pixels = y.reshape(len(x), -1, x.shape[-1])
        attention = Attention(self.heads, x.shape[-1] // self.heads, bias=True)
        return x + attention(pixels).reshape(x.shape)


class UNet(nn.Module):
    """A network that predicts noise at a time, from fine to coarse levels and back."""

    config: Config

    @nn.compact
    def __call__(self, x: Array, time: Array) -> Array:
        """The output that `diffusion.noise_in` expects for x [B, S, S, 3] at times [B]."""
        config = self.config
        levels = list(enumerate(config.channels * m for m in config.multipliers))

        def block(x: Array, channels: int, name: str, attends: bool = False) -> Array:
            x = ResidualBlock(channels, config.groups, name=name)(x, time)
            if attends or x.shape[1] in config.attention:
                name = f"{name}_attention"
                x = AttentionBlock(config.heads, config.groups, name=name)(x)
            return x

        time = diffusion.time_features(time, config.channels)
        time = nn.silu(nn.Dense(4 * config.channels, name="time_1")(time))
        time = nn.Dense(4 * config.channels, name="time_2")(time)

        x = _conv(config.channels, "first")(x)
        passed = [x]
        for level, channels in levels:
            if level:
                x = _conv(x.shape[-1], f"halve_{level}", stride=2)(x)
                passed.append(x)
            for i in range(config.blocks):
                x = block(x, channels, f"down_{level}_{i}")
                passed.append(x)

        x = block(x, x.shape[-1], "middle_0", attends=True)
        x = ResidualBlock(x.shape[-1], config.groups, name="middle_1")(x, time)

        for level, channels in reversed(levels):
            for i in range(config.blocks + 1):
                x = jnp.concatenate([x, passed.pop()], axis=-1)
                x = block(x, channels, f"up_{level}_{i}")
            if level:
                x = x.repeat(2, axis=1).repeat(2, axis=2)
                x = _conv(x.shape[-1], f"double_{level}")(x)

        assert not passed, "every value that goes around is used once"
        x = nn.silu(nn.GroupNorm(config.groups, name="norm")(x))
        return _conv(3, "last", is_last=True)(x)


# -- training ----------------------------------------------------------------------


def loss(config: Config, params: dict, batch: dict[str, Array]) -> Array:
    """Mean square of the noise that the net misses."""
    net = partial(UNet(config).apply, {"params": params})
    return diffusion.loss(net, batch["image"], batch["key"], config.steps)


def sample(config: Config, params: dict, key: Array, count: int) -> Array:
    """`count` generated images, [count, S, S, 3]."""
    net = partial(UNet(config).apply, {"params": params})
    shape = (count, config.size, config.size, 3)
    return diffusion.sample(net, key, shape, config.steps)


def start(config: Config, key: Array) -> State:
    """Parameters drawn from `key`, and Adam at rest."""
    image = jnp.zeros((1, config.size, config.size, 3))
    params = UNet(config).init(key, image, jnp.zeros(1, jnp.int32))["params"]
    return new_state(params, optax.adam(config.rate))


def batches(config: Config, seed: int) -> Iterator[dict[str, Any]]:
    """Made images, each batch with a key for its noise and times."""
    key = jax.random.key(seed)
    for i, batch in enumerate(made_batches(config.batch, config.size, 8, seed)):
        yield {"image": batch["image"], "key": jax.random.fold_in(key, i)}


def learn(config: Config, seed: int, steps: int) -> Iterator[tuple[State, Array]]:
    """The state after each of `steps` steps, and the loss before it."""
    state = jax.jit(partial(start, config))(jax.random.key(seed, impl=INIT_KEY))
    step = jax.jit(train_step_of(partial(loss, config), optax.adam(config.rate)))
    for _, batch in zip(range(steps), batches(config, seed), strict=False):
        state, value = step(state, batch)
        yield state, value


def train(seed: int, steps: int) -> Curve:
    """The loss of each step on made images."""
    for _, value in learn(TINY, seed, steps):
        yield {"loss": float(value)}


def write_samples(path: Path, seed: int, steps: int) -> np.ndarray:
    """32 samples of the small net, trained; in the PNG they stand above 32 made images."""
    *_, (state, _) = learn(TINY, seed, steps)
    images = jax.jit(partial(sample, TINY, count=32))(state.params, jax.random.key(1))
    known = next(batches(TINY, seed))["image"][:32]
    diffusion.write_grid(path, np.concatenate([images, known]), columns=16, zoom=4)
    return np.asarray(images)


# -- targets and schedules ---------------------------------------------------------


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    shape = (config.batch, config.size, config.size, 3)
    batch = {
        "image": jax.ShapeDtypeStruct(shape, jnp.float32),
        "key": jax.eval_shape(jax.random.key, 0),
    }
    state = jax.eval_shape(partial(start, config), jax.random.key(0))
    return train_step_of(partial(loss, config), optax.adam(config.rate)), (state, batch)


def tiny():
    """Two levels of 16 and 32 channels, on made images, as arrays."""
    step, _ = _train_target(TINY)
    state = jax.jit(partial(start, TINY))(jax.random.key(0, impl=INIT_KEY))
    return step, (state, next(batches(TINY, seed=0)))


def tiny_forward():
    """The noise in one made image at a time, by a net that was taught 5 steps."""
    *_, (state, _) = learn(TINY, seed=0, steps=5)

    def forward(params: dict, image: Array, time: Array) -> Array:
        return UNet(TINY).apply({"params": params}, image, time)

    image = next(batches(TINY, seed=1))["image"][:1]
    return forward, (state.params, image, jnp.full(1, 7, jnp.int32))


inference = {"tiny": tiny_forward}

targets = sized(_train_target, SIZES)

DP = mw.data_parallel("data", "batch.image")
MP = mw.shard(
    {"state.params.**.conv_1.kernel": 3, "state.params.**.q.kernel": 1}, axis="model"
)

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+z2": [DP, mw.zero(2, "data")],
    "dp+mp": [DP, MP],
    "dp+mp+z3": [DP, MP, mw.zero(3, "data")],
}
"""PartIR's BP, BP+Z2 and BP+Z3 (`fsdp`), and its MP: a block's first convolution is cut
on features out, its second follows on features in; attention is cut by heads."""


_HO = "Ho et al., 2020, appendix B"

workload = Workload(
    name="unet",
    title="diffusion U-Net",
    paper="Ho, Jain, Abbeel, Denoising Diffusion Probabilistic Models, NeurIPS 2020",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=200,
    schedules=schedules,
    best="dp+mp+z3",
    published=(
        published_parameters("DDPM, CIFAR-10", 35.7e6, targets["ho_cifar10"], _HO),
        published_parameters("DDPM, 256 x 256", 114e6, targets["ho_256"], _HO),
    ),
)

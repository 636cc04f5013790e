"""U-Nets for volumes: every voxel of a scan gets a class.

`cicek` is O. Cicek, A. Abdulkadir, S. Lienkamp, T. Brox, O. Ronneberger, "3D U-Net:
Learning Dense Volumetric Segmentation from Sparse Annotation", MICCAI 2016. `mlperf` is
the benchmark that MLPerf Training made of its successor (F. Isensee et al., "No
New-Net", 2018): strides instead of pooling, instance norms, five halvings, and the sum
of dice loss and cross-entropy, which all sizes train with here.

Assumed here: zeros around a convolution, where Cicek et al. lose a border; cubes of 128
voxels, where they cut 132 x 132 x 116, in batches of 8 and 32; batch norms that scale and
shift nothing (their count of parameters says so) and use the batch's own statistics, as
theirs do in tests too.

The small form learns balls: a large one of class 1, and a bright one of class 2 within
it, as a tumour is in a kidney.

Letters: B batch, X, Y, Z space, C channels, K classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import meshwright as mw
from zoo.training import State, new_state, train_step_of
from zoo.workload import (
    Curve,
    Workload,
    check_numbers,
    choose,
    published_parameters,
    sized,
)

NORMS = {"instance": (1, 2, 3), "batch": (0, 1, 2, 3)}
"""The dims over which a norm has mean 0 and variance 1."""

SMOOTH = 1e-3
"""Keeps dice at 1 for a class that neither is there nor is found."""


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a net, of its volumes and of its batch.

    levels: channels of the two convolutions of each level, from fine to coarse.
    norm: one of NORMS; convolutions have a bias where it adds none.
    is_strided: a level starts with a convolution of stride 2, else with max pooling;
        and going up narrows before it joins, else after it.
    """

    size: int
    inputs: int
    classes: int
    levels: tuple[tuple[int, int], ...]
    norm: str
    is_strided: bool
    batch: int
    rate: float = 1e-3

    def __post_init__(self) -> None:
        check_numbers(self)
        choose(self.norm, NORMS, "norm")
        if self.classes < 2:
            raise ValueError(f"{self.classes} classes leave nothing to tell apart")
        halvings = len(self.levels) - 1
        if self.size % 2**halvings:
            raise ValueError(
                f"volumes of {self.size} voxels a side cannot be halved {halvings} "
                f"times, once between each of {len(self.levels)} levels"
            )


SIZES = {
    "cicek": Config(
        128, 3, 3, ((32, 64), (64, 128), (128, 256), (256, 512)), "batch",
        is_strided=False, batch=8,
    ),
    "mlperf": Config(
        128, 1, 3, tuple((c, c) for c in (32, 64, 128, 256, 320, 320)), "instance",
        is_strided=True, batch=32,
    ),
}  # fmt: skip
TINY = Config(
    12, 1, 3, ((8, 8), (16, 16)), "instance", is_strided=True, batch=8, rate=1e-2
)

# -- the net -----------------------------------------------------------------------


class Norm(nn.Module):
    """Values with mean 0 and variance 1; an instance norm then scales and shifts them."""

    kind: str

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, X, Y, Z, C] of x [B, X, Y, Z, C]."""
        x = jax.nn.standardize(x, axis=NORMS[self.kind], epsilon=1e-5)
        if self.kind == "batch":
            return x
        channels = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, channels)
        return x * scale + self.param("bias", nn.initializers.zeros, channels)


class Block(nn.Module):
    """Two convolutions 3 x 3 x 3, each with a norm and a ReLU."""

    channels: tuple[int, int]
    norm: str
    stride: int = 1

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, X, Y, Z, C] of x; X, Y and Z divided by the stride."""
        has_bias = self.norm == "batch"
        for i, channels in enumerate(self.channels):
            stride = self.stride if i == 0 else 1
            x = nn.Conv(
                channels, (3, 3, 3), strides=stride, use_bias=has_bias, name=f"conv_{i}"
            )(x)
            x = nn.relu(Norm(self.norm, name=f"norm_{i}")(x))
        return x


class UNet3D(nn.Module):
    """Scores of each voxel, from fine to coarse and back."""

    config: Config

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, X, Y, Z, K] of volumes x [B, X, Y, Z, C]."""
        config = self.config
        passed = []
        for i, channels in enumerate(config.levels):
            stride = 2 if i and config.is_strided else 1
            if i and not config.is_strided:
                x = nn.max_pool(x, (2, 2, 2), strides=(2, 2, 2))
            x = Block(channels, config.norm, stride, name=f"down_{i}")(x)
            passed.append(x)
        passed.pop()
        for i, (_, channels) in reversed(list(enumerate(config.levels[:-1]))):
            width = channels if config.is_strided else x.shape[-1]
            x = nn.ConvTranspose(
                width, (2, 2, 2), strides=(2, 2, 2), use_bias=False, name=f"double_{i}"
            )(x)
            x = jnp.concatenate([passed.pop(), x], axis=-1)
            x = Block((channels, channels), config.norm, name=f"up_{i}")(x)
        return nn.Conv(config.classes, (1, 1, 1), name="last")(x)


def dice(shares: Array, found: Array) -> Array:
    """Overlap [B, K] of two segmentations [B, X, Y, Z, K]: 1 where equal, 0 if disjoint.

    Twice what both hold, divided by what each holds (Dice, 1945).
    """
    space = (1, 2, 3)
    both = jnp.sum(shares * found, axis=space)
    each = jnp.sum(shares, axis=space) + jnp.sum(found, axis=space)
    return (2 * both + SMOOTH) / (each + SMOOTH)


def loss(config: Config, params: dict, batch: dict[str, Array]) -> Array:
    """Mean of cross-entropy and of what dice lacks, over all classes but background."""
    scores = UNet3D(config).apply({"params": params}, batch["volume"])
    truth = jax.nn.one_hot(batch["label"], config.classes)
    entropy = -jnp.mean(jnp.sum(truth * jax.nn.log_softmax(scores), axis=-1))
    overlap = dice(jax.nn.softmax(scores), truth)[:, 1:]
    return (entropy + 1 - jnp.mean(overlap)) / 2


def accuracy(config: Config, params: dict, batch: dict[str, Array]) -> Array:
    """Mean dice of the likeliest classes, over all but background."""
    scores = UNet3D(config).apply({"params": params}, batch["volume"])
    found = jax.nn.one_hot(jnp.argmax(scores, axis=-1), config.classes)
    truth = jax.nn.one_hot(batch["label"], config.classes)
    return jnp.mean(dice(found, truth)[:, 1:])


# -- data and training -------------------------------------------------------------


def made_volumes(config: Config, seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Noisy volumes [B, X, Y, Z, 1] with a ball in a ball, and labels [B, X, Y, Z].

    Without end, the same for the same seed.
    """
    rng = np.random.default_rng(seed)
    side = np.arange(config.size)
    place = np.stack(np.meshgrid(side, side, side, indexing="ij"), axis=-1)
    brightness = np.array([0.0, 1.0, 2.0], np.float32)
    while True:
        label = np.zeros((config.batch, *place.shape[:3]), np.int32)
        for one in label:
            centre = rng.uniform(0.35, 0.65, 3) * config.size
            radius = rng.uniform(0.25, 0.35) * config.size
            inner = centre + rng.uniform(-0.2, 0.2, 3) * radius
            one[((place - centre) ** 2).sum(axis=-1) < radius**2] = 1
            one[((place - inner) ** 2).sum(axis=-1) < (radius / 2) ** 2] = 2
        noise = rng.normal(0, 0.5, label.shape).astype(np.float32)
        yield {"volume": (brightness[label] + noise)[..., None], "label": label}


def start(config: Config, key: Array) -> State:
    """Parameters drawn from `key`, and Adam at rest."""
    volume = jnp.zeros((1, *3 * [config.size], config.inputs))
    return new_state(
        UNet3D(config).init(key, volume)["params"], optax.adam(config.rate)
    )


def train(seed: int, steps: int) -> Curve:
    """The loss of each step on made volumes, and dice on the same before it."""
    state = jax.jit(partial(start, TINY))(jax.random.key(seed))
    step = jax.jit(train_step_of(partial(loss, TINY), optax.adam(TINY.rate)))
    measure = jax.jit(partial(accuracy, TINY))
    for _, batch in zip(range(steps), made_volumes(TINY, seed), strict=False):
        found = measure(state.params, batch)
        state, value = step(state, batch)
        yield {"loss": float(value), "dice": float(found)}


# -- targets and schedules ---------------------------------------------------------


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    state = jax.eval_shape(partial(start, config), jax.random.key(0))
    space = (config.batch, *3 * [config.size])
    batch = {
        "volume": jax.ShapeDtypeStruct((*space, config.inputs), jnp.float32),
        "label": jax.ShapeDtypeStruct(space, jnp.int32),
    }
    return train_step_of(partial(loss, config), optax.adam(config.rate)), (state, batch)


def tiny():
    """Two levels, on volumes of 12 voxels a side, as arrays."""
    step, _ = _train_target(TINY)
    state = jax.jit(partial(start, TINY))(jax.random.key(0))
    return step, (state, next(made_volumes(TINY, seed=0)))


def tiny_forward():
    """The scores of one made volume's voxels."""
    _, (state, batch) = tiny()

    def forward(params: dict, volume: Array) -> Array:
        return UNet3D(TINY).apply({"params": params}, volume)

    return forward, (state.params, batch["volume"][:1])


inference = {"tiny": tiny_forward}

targets = sized(_train_target, SIZES)

DP = mw.data_parallel("data", "batch.**")
SPACE = mw.shard({"batch.**": 1}, axis="model")
CHANNELS = mw.shard({"state.params.**.conv_0.kernel": 4}, axis="model")

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+channels": [DP, CHANNELS],
    "dp+space": [DP, SPACE],
    "dp+space+z3": [DP, SPACE, mw.zero(3, "data")],
}
"""`space` cuts every volume in slabs; convolutions fetch what lies at their borders."""


workload = Workload(
    name="unet3d",
    title="U-Net for volumes",
    paper="Cicek, Abdulkadir, Lienkamp, Brox, Ronneberger, 3D U-Net, MICCAI 2016",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=60,
    schedules=schedules,
    best="dp+space",
    published=(
        published_parameters(
            "3D U-Net", 19_069_955, targets["cicek"], "Cicek et al., 2016, section 2"
        ),
    ),
)

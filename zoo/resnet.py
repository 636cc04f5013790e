"""Residual networks, from ResNet-50 to the 13 billion parameters of Alpa's.

K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR
2016. As in most later work, a block's stride is on its 3 x 3 convolution (He's is on the
first 1 x 1), and the last norm of a block starts at zero (Goyal et al., 2017).

`wrn_250m` to `wrn_13b` are the Wide-ResNets of Alpa (Zheng et al., OSDI 2022, after
Zagoruyko and Komodakis, 2016): layers, base channels and width are those of its table,
their meaning is from its benchmark. Only the 3 x 3 convolution of a block is `width`
times wider; 1024 classes, 32-bit floats, SGD with momentum. Assumed here: weight decay
as He has it, a constant rate, and the whole batch in one step, not in micro-batches.

Letters: B batch, S height and width, C channels, K classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

import meshwright as mw
from zoo.classifier import batch_shapes
from zoo.count import macs
from zoo.images import Batch, made_batches
from zoo.layers import cross_entropy
from zoo.training import ALONE, Replicas, State, TrainStep, new_state, run
from zoo.workload import (
    Curve,
    Published,
    Workload,
    check_numbers,
    num_parameters,
    sized,
)  # fmt: skip

LAYERS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Blocks of each stage, by the number of layers in a network's name."""

OPTIMIZER = optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.1, momentum=0.9))
"""He et al., section 3.4."""


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a network, of its images and of its batch.

    stages: blocks of each stage; every stage but the first halves S and doubles C.
    channels: inside the first stage's blocks, and before it.
    width: of the 3 x 3 convolutions, in units of their stage's channels.
    scan: one traced block for those of a stage that are equal, all but its first.
    remat: every block is computed again in the backward pass, and keeps its input only.
    """

    stages: tuple[int, ...]
    batch: int
    channels: int = 64
    width: int = 1
    size: int = 224
    classes: int = 1000
    scan: bool = False
    remat: bool = False

    def __post_init__(self) -> None:
        check_numbers(self)
        if not self.stages:
            raise ValueError("a network has one stage or more")
        halvings = len(self.stages) + 1
        if self.size % 2**halvings:
            what = f"images of {self.size} pixels cannot be halved {halvings} times, "
            places = f"twice before and once between each of {len(self.stages)} stages"
            raise ValueError(what + places)


def _alpa(layers: int, channels: int, width: int, batch: int = 1536) -> Config:
    """A row of Alpa's table; a hundred layers are traced as loops."""
    return Config(LAYERS[layers], batch, channels, width, 224, 1024, scan=layers > 50)


SIZES = {
    "resnet_50": Config(LAYERS[50], batch=256),
    "resnet_101": Config(LAYERS[101], batch=256, scan=True),
    "resnet_152": Config(LAYERS[152], batch=256, scan=True),
    "wrn_250m": _alpa(50, 160, 2),
    "wrn_500m": _alpa(50, 224, 2),
    "wrn_1b": _alpa(50, 320, 2),
    "wrn_2b": _alpa(50, 448, 2),
    "wrn_4b": _alpa(50, 640, 2),
    "wrn_6_8b": _alpa(50, 320, 16),
    "wrn_13b": _alpa(101, 320, 16, batch=1520),
}
TINY = Config((1, 3), batch=32, channels=8, width=2, size=32, classes=8, scan=True)

# -- the network -------------------------------------------------------------------


def _conv(channels: int, width: int, name: str, stride: int = 1) -> nn.Conv:
    init = nn.initializers.he_normal()
    return nn.Conv(
        channels, (width, width), stride, use_bias=False, kernel_init=init, name=name
    )


class Block(nn.Module):
    """A bottleneck of three convolutions, with a shortcut.

    is_training: norms use the batch's moments and keep a running mean of them, which
        is what they use otherwise.
    across: the axis of replicas whose batches have common moments, if any.
    """

    channels: int
    width: int
    stride: int
    is_training: bool
    across: str | None = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, S / stride, S / stride, 4 channels] of x [B, S, S, C]."""
        norm = partial(
            nn.BatchNorm,
            use_running_average=not self.is_training,
            momentum=0.9,
            axis_name=self.across,
        )
        out = 4 * self.channels
        y = _conv(self.channels, 1, "conv_1")(x)
        y = nn.relu(norm(name="norm_1")(y))
        y = _conv(self.width * self.channels, 3, "conv_2", self.stride)(y)
        y = nn.relu(norm(name="norm_2")(y))
        y = _conv(out, 1, "conv_3")(y)
        y = norm(scale_init=nn.initializers.zeros, name="norm_3")(y)
        if x.shape != y.shape:
            x = _conv(out, 1, "conv_around", self.stride)(x)
            x = norm(name="norm_around")(x)
        return nn.relu(x + y)


class ResNet(nn.Module):
    """The scores of an image's classes; `across` is that of `Block`."""

    config: Config
    is_training: bool
    across: str | None = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, K] of x [B, S, S, 3]."""
        config = self.config
        x = _conv(config.channels, 7, "conv", stride=2)(x)
        norm = nn.BatchNorm(
            not self.is_training, momentum=0.9, axis_name=self.across, name="norm"
        )
        x = nn.max_pool(nn.relu(norm(x)), (3, 3), (2, 2), padding="SAME")
        for i, count in enumerate(config.stages):
            x = self.stage(x, i, count)
        return nn.Dense(config.classes, name="classes")(jnp.mean(x, axis=(1, 2)))

    def stage(self, x: Array, i: int, count: int) -> Array:
        """The residual stream after stage `i` of `count` blocks."""
        channels, width = self.config.channels * 2**i, self.config.width
        block = partial(
            nn.remat(Block) if self.config.remat else Block,
            channels,
            width,
            is_training=self.is_training,
            across=self.across,
        )
        x = block(stride=2 if i else 1, name=f"stage_{i}_block_0")(x)
        if count == 1 or not self.config.scan:
            for j in range(1, count):
                x = block(stride=1, name=f"stage_{i}_block_{j}")(x)
            return x
        scanned = nn.scan(
            lambda block, x, _: (block(x), None),
            variable_axes={"params": 0, "batch_stats": 0},
            split_rngs={"params": True},
            length=count - 1,
        )
        return scanned(block(stride=1, name=f"stage_{i}_blocks"), x, None)[0]


# -- training ----------------------------------------------------------------------


def scores(config: Config, params: dict, stats: dict, image: Array) -> Array:
    """Scores [B, K] of images by running means, as after training."""
    net = ResNet(config, is_training=False)
    return net.apply({"params": params, "batch_stats": stats}, image)


def train_step_for(config: Config, replicas: Replicas = ALONE) -> TrainStep:
    """`step(state, batch)`: as `zoo.training` has it, and running means move too."""
    net = ResNet(config, is_training=True, across=replicas.axis)
    optimizer = replicas.wrap_optimizer(OPTIMIZER)

    def loss(params: dict, stats: dict, batch: Batch) -> tuple[Array, dict]:
        variables = {"params": params, "batch_stats": stats}
        logits, changed = net.apply(variables, batch["image"], mutable=["batch_stats"])
        return cross_entropy(logits, batch["label"]), changed["batch_stats"]

    def train_step(state: State, batch: Batch) -> tuple[State, Array]:
        gradients_of = jax.value_and_grad(loss, has_aux=True)
        (value, stats), gradients = gradients_of(state.params, state.stats, batch)
        updates, rest = optimizer.update(gradients, state.optimizer, state.params)
        stats = replicas.mean(stats)
        return State(optax.apply_updates(state.params, updates), rest, stats), value

    return train_step


def start(config: Config, key: Array) -> State:
    """Parameters drawn from `key`, momentum zero, running moments 0 and 1."""
    image = jnp.zeros((1, config.size, config.size, 3))
    variables = ResNet(config, is_training=False).init(key, image)
    state = new_state(variables["params"], OPTIMIZER)
    return state._replace(stats=variables["batch_stats"])


def batches(config: Config, seed: int) -> Iterator[Batch]:
    """Made images of as many classes as the network knows."""
    return made_batches(config.batch, config.size, config.classes, seed)


def train(seed: int, steps: int) -> Curve:
    """The loss of each step on made images."""
    state = jax.jit(partial(start, TINY))(jax.random.key(seed))
    yield from run(train_step_for(TINY), state, batches(TINY, seed), steps)


# -- targets and schedules ---------------------------------------------------------


def train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    """A train step, and the shapes of its state and of a batch."""
    state = jax.eval_shape(partial(start, config), jax.random.key(0))
    batch = batch_shapes(config.batch, config.size)
    return train_step_for(config), (state, batch)


def tiny():
    """Two stages of one and three wide blocks, on made images, as arrays."""
    state = jax.jit(partial(start, TINY))(jax.random.key(0))
    return train_step_for(TINY), (state, next(batches(TINY, seed=0)))


def tiny_forward():
    """The scores of one made image, by running means."""
    _, (state, batch) = tiny()
    return partial(scores, TINY), (state.params, state.stats, batch["image"][:1])


inference = {"tiny": tiny_forward}

targets = sized(train_target, SIZES)

DP = mw.data_parallel("data")
MP = mw.shard({"state.params.**.conv_2.kernel": -1}, axis="model")

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+mp": [DP, MP],
    "dp+mp+z3": [DP, MP, mw.zero(3, "data")],
}
"""Data parallelism is how ResNet-50 is trained. A block wide inside is cut there: the
3 x 3 convolution on features out, the last 1 x 1 follows on features in."""


def num_weights(config: Config) -> int:
    """Parameters, without the running moments."""
    _, (state, _) = train_target(config)
    return num_parameters(state.params)


def num_macs(config: Config) -> int:
    """Multiply-adds for one image."""
    _, (state, _) = train_target(config)
    image = batch_shapes(1, config.size)["image"]
    return macs(partial(scores, config), state.params, state.stats, image)


_TAN = "Tan and Le, EfficientNet, ICML 2019, table 2"
_HE = "He et al., 2016, table 1"
_ALPA = "its name in Alpa's benchmark; 12.6 billion are called 13"

_NAMED = {
    "wrn_250m": 250e6, "wrn_500m": 500e6, "wrn_1b": 1e9, "wrn_2b": 2e9, "wrn_4b": 4e9,
    "wrn_6_8b": 6.8e9, "wrn_13b": 13e9,
}  # fmt: skip


def _parameters(name: str, value: float, source: str, within: float) -> Published:
    count = partial(num_weights, SIZES[name])
    return Published(name, "parameters", value, count, source, within)


def _macs(name: str, value: float, source: str) -> Published:
    return Published(name, "MACs", value, partial(num_macs, SIZES[name]), source, 0.05)


workload = Workload(
    name="resnet",
    title="ResNet and Wide-ResNet",
    paper="He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, CVPR 2016",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=120,
    schedules=schedules,
    best="dp+mp+z3",
    published=(
        _parameters("resnet_50", 26e6, _TAN, 0.02),
        _macs("resnet_50", 4.1e9, _TAN),
        _macs("resnet_101", 7.6e9, _HE),
        _parameters("resnet_152", 60e6, _TAN, 0.02),
        _macs("resnet_152", 11.3e9, _HE),
        *(_parameters(name, value, _ALPA, 0.03) for name, value in _NAMED.items()),
    ),
)

"""WaveNet with 16-bit output, as the teacher of Parallel WaveNet: training and sampling.

A. van den Oord, S. Dieleman, H. Zen, K. Simonyan, O. Vinyals, A. Graves,
N. Kalchbrenner, A. Senior, K. Kavukcuoglu, "WaveNet: A Generative Model for Raw Audio",
2016; with section 2.1 of A. van den Oord et al., "Parallel WaveNet: Fast High-Fidelity
Speech Synthesis", ICML 2018: a mixture of logistics over 65,536 levels (Salimans et
al., PixelCNN++, ICLR 2017), filters of 3 samples, 24 kHz. 3 stacks of 10 layers whose
dilation doubles; gates of 256 units, 512 channels, 256 on the way out; batches of 32
windows of 7,680 samples, Adam at 2e-4, averaged weights.

Assumed: the network is conditioned on the power in frequency bands (`zoo.audio`), in the
papers on linguistic features and pitch; a frame's features are repeated, not upsampled by a
learned convolution; logarithms of scales stay above -9, four levels; gradients are clipped
to a norm of 1.

Letters: B batch, T samples, F frames, C features of a frame, K samples of a filter,
R channels, G units of a gate, U skip channels, M logistics, S stacks.
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
from zoo.audio import Tones, batches
from zoo.dilated import Head, Net, Trunk, delay
from zoo.logistics import Mixture, log_mass
from zoo.once import once
from zoo.training import State, TrainStep, new_state, run, train_step_of
from zoo.workload import Curve, Workload, check_numbers, sized

LOWEST_LOG_SCALE = -9.0


@dataclass(frozen=True, slots=True)
class Config:
    """A network with its outputs and features, and its training.

    window: samples of an example; hop: samples of a frame of features.
    average: the share of the averaged weights that a step keeps.
    """

    net: Net
    mixtures: int
    window: int
    hop: int
    features: int
    sampling_rate: int
    batch: int
    rate: float
    average: float

    def __post_init__(self) -> None:
        if self.net.skip is None:
            raise ValueError("a WaveNet is read from its skip channels: give `skip`")
        check_numbers(self)
        if self.window % self.hop:
            raise ValueError(
                f"a window of {self.window} samples is not of whole frames of {self.hop}"
            )


SIZES = {
    "teacher": Config(
        Net(3, 10, channels=512, gate=256, skip=256), mixtures=10, window=7680, hop=120,
        features=32, sampling_rate=24_000, batch=32, rate=2e-4, average=0.9999,
    ),
}  # fmt: skip
TINY = Config(
    Net(1, 7, channels=32, gate=16, skip=32), mixtures=4, window=512, hop=64,
    features=16, sampling_rate=8000, batch=8, rate=4e-3, average=0.95,
)  # fmt: skip


class WaveNet(nn.Module):
    """The distribution of each sample, given those before it and the features."""

    config: Config

    def setup(self) -> None:
        net = self.config.net
        self.trunk = Trunk(net)
        self.head = Head(net.skip, 3 * self.config.mixtures)

    def __call__(self, audio: Array, features: Array) -> Mixture:
        """The distribution of each sample of `audio` [B, T], from earlier samples."""
        return self.read(self.trunk(delay(audio, 1), features)[1])

    def read(self, skip: Array) -> Mixture:
        """The mixture that skip channels [..., U] tell."""
        logits, means, log_scales = jnp.split(self.head(skip), 3, axis=-1)
        return Mixture(logits, means, jnp.maximum(log_scales, LOWEST_LOG_SCALE))


# -- training -------------------------------------------------------------------------


def loss(config: Config, params: dict, batch: dict[str, Array]) -> Array:
    """Mean over samples of -log of the probability of their levels, in nats."""
    mixture = WaveNet(config).apply(
        {"params": params}, batch["audio"], batch["features"]
    )
    return -jnp.mean(log_mass(mixture, batch["audio"]))


def init(config: Config, key: Array) -> dict:
    """Parameters drawn from `key`."""
    audio = jnp.zeros((1, config.hop))
    features = jnp.zeros((1, 1, config.features))
    return WaveNet(config).init(key, audio, features)["params"]


def optimizer(rate: float) -> optax.GradientTransformation:
    """Adam; a window that was thought impossible does not undo what was learned."""
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


def start(config: Config, key: Array) -> State:
    """The state before the first step; `stats` are the averaged weights."""
    params = init(config, key)
    return new_state(params, optimizer(config.rate))._replace(stats=params)


def train_step_for(config: Config) -> TrainStep:
    """`step(state, batch)`: one update, and the averaged weights a little nearer."""
    update = train_step_of(partial(loss, config), optimizer(config.rate))

    def train_step(state: State, batch: dict[str, Array]) -> tuple[State, Array]:
        state, value = update(state, batch)
        near = optax.incremental_update(state.params, state.stats, 1 - config.average)
        return state._replace(stats=near), value

    return train_step


def made_batches(config: Config, seed: int) -> Iterator[dict[str, Any]]:
    """Windows of generated tones; `zoo.audio.load_folder` loads recordings."""
    tones = Tones(4096, config.window, config.sampling_rate, seed)
    return batches(tones, config.batch, seed, config.hop, config.features)


def learn(config: Config, seed: int, steps: int) -> dict:
    """The averaged weights after some steps on made tones."""
    step = jax.jit(train_step_for(config))
    state = once(partial(start, config))(jax.random.key(seed))
    for _, batch in zip(range(steps), made_batches(config, seed), strict=False):
        state, _ = step(state, batch)
    return state.stats


def train(seed: int, steps: int) -> Curve:
    """The loss of each step on made tones."""
    state = once(partial(start, TINY))(jax.random.key(seed))
    return run(train_step_for(TINY), state, made_batches(TINY, seed), steps)


# -- targets and schedules ---------------------------------------------------------


def batch_shapes(config: Config) -> dict[str, jax.ShapeDtypeStruct]:
    """A batch as shapes."""
    frames = (config.batch, config.window // config.hop, config.features)
    return {
        "audio": jax.ShapeDtypeStruct((config.batch, config.window), jnp.float32),
        "features": jax.ShapeDtypeStruct(frames, jnp.float32),
    }


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    state = jax.eval_shape(partial(start, config), jax.random.key(0))
    return train_step_for(config), (state, batch_shapes(config))


def tiny():
    """A stack of seven layers, and made tones of 8 kHz, as arrays."""
    state = once(partial(start, TINY))(jax.random.key(0))
    return train_step_for(TINY), (state, next(made_batches(TINY, seed=0)))


def tiny_forward():
    """The distribution of each sample of one made tone."""
    _, (state, batch) = tiny()

    def forward(params: dict, audio: Array, features: Array) -> Mixture:
        return WaveNet(TINY).apply({"params": params}, audio, features)

    return forward, (state.params, batch["audio"][:1], batch["features"][:1])


inference = {"tiny": tiny_forward}

targets = sized(_train_target, SIZES)

DP = mw.data_parallel("data", "batch.**")
GATES = mw.shard(
    {
        "**.filter": -1,
        "**.gate": -1,
        "**.*_heard": -1,
        "**.*_bias": -1,
        "**.on": -2,
        "**.out": -2,
    },
    axis="model",
)
"""Units of the gates, as Megatron cuts an MLP: one sum for each layer."""

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+gates": [DP, GATES],
    "dp+gates+z3": [DP, GATES, mw.zero(3, "data")],
}

workload = Workload(
    name="wavenet",
    title="WaveNet",
    paper="van den Oord et al., WaveNet: A Generative Model for Raw Audio, 2016",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=300,
    schedules=schedules,
    best="dp+gates",
)

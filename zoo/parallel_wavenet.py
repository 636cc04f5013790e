"""Parallel WaveNet: a student that draws all samples at once, distilled from a WaveNet.

A. van den Oord et al., "Parallel WaveNet: Fast High-Fidelity Speech Synthesis", ICML 2018.
The student is four inverse autoregressive flows (Kingma et al., NeurIPS 2016) over logistic
noise: flow i maps x to x s + m, where a WaveNet without skip channels predicts s and m of a
sample from the x before it. Given the noise before it, a sample is then one logistic of
scale s = prod s_i, and the divergence from student to teacher is

    KL = H(student, teacher) - H(student),  H(student) = sum of E[log s] + 2 over samples,

where the cross-entropy takes one pass of the teacher over one drawn waveform, and then
several draws of each sample from its logistic. Flows of 10, 10, 10 and 30 layers with 64
channels; trained like the teacher. A power loss compares the power with the recording's in
each frequency, averaged over time.

Assumed: 8 draws of a sample; frames of 512 samples that overlap by half; the power loss
counts 4-fold, the mean over frequencies. Ours lacks the perceptual loss, which needs a
network that recognises phones, and the contrastive loss; the teacher's bins count by
density, so that both terms of the KL have one unit.

Letters: B batch, T samples, F frames, C features of a frame, N draws of a sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

import meshwright as mw
from zoo import wavenet
from zoo.dilated import Head, Net, Trunk, delay
from zoo.logistics import log_density, nearest_level
from zoo.once import once
from zoo.training import State, TrainStep, new_state, train_step_of
from zoo.wavenet import GATES, WaveNet
from zoo.workload import Curve, Workload, check_numbers, sized

START_LOG_SCALE = -1.0
"""Of each flow: so a new student is quiet noise, within the range of audio."""

REACH = 3.0
"""How far a flow's log of scale goes from its start: four unbounded ones overflow."""


@dataclass(frozen=True, slots=True)
class Config:
    """A teacher, the flows of its student, and the distillation.

    draws: of each sample for the cross-entropy; frame: samples of the power loss's DFT.
    power: weight of the power loss, relative to the KL of a sample.
    """

    teacher: wavenet.Config
    flows: tuple[Net, ...]
    draws: int
    frame: int
    power: float
    rate: float

    def __post_init__(self) -> None:
        check_numbers(self)
        if not self.flows:
            raise ValueError("a student has one flow or more")
        if any(flow.skip is not None for flow in self.flows):
            raise ValueError("a flow is read from its channels: its `skip` is None")
        if not 2 <= self.frame <= self.teacher.window or self.frame % 2:
            raise ValueError(
                f"a frame of {self.frame} samples: wanted an even number, up to the "
                f"window of {self.teacher.window}"
            )


FLOW = Net(1, 10, channels=64, gate=32, skip=None)

SIZES = {
    "student": Config(
        wavenet.SIZES["teacher"], (FLOW, FLOW, FLOW, replace(FLOW, stacks=3)),
        draws=8, frame=512, power=4.0, rate=2e-4,
    ),
}  # fmt: skip
TINY_FLOW = Net(1, 6, channels=16, gate=16, skip=None)
TINY = Config(wavenet.TINY, (TINY_FLOW,) * 4, draws=4, frame=128, power=4.0, rate=2e-3)

TEACHER_STEPS = 300
"""Of the small teacher, before its student starts."""


class Drawn(NamedTuple):
    """Audio, and the mean and log of the scale of each sample given the noise before it."""

    audio: Array
    mean: Array
    log_scale: Array


class Student(nn.Module):
    """Waveforms of noise and features, in one pass."""

    flows: tuple[Net, ...]

    @nn.compact
    def __call__(self, noise: Array, features: Array) -> Drawn:
        """The waveform of standard logistic `noise` [B, T] and `features` [B, F, C]."""
        drawn = Drawn(noise, jnp.zeros_like(noise), jnp.zeros_like(noise))
        for i, net in enumerate(self.flows):
            before = delay(drawn.audio, 1)
            channels, _ = Trunk(net, name=f"flow_{i}")(before, features)
            shift, log_scale = jnp.unstack(
                Head(net.channels, 2, 1e-2, name=f"head_{i}")(channels), axis=-1
            )
            log_scale = START_LOG_SCALE + REACH * jnp.tanh(log_scale / REACH)
            scale = jnp.exp(log_scale)
            drawn = Drawn(
                drawn.audio * scale + shift,
                drawn.mean * scale + shift,
                drawn.log_scale + log_scale,
            )
        return drawn


def entropy(drawn: Drawn) -> Array:
    """Of the student's samples, in nats each: a logistic has log of its scale + 2."""
    return jnp.mean(drawn.log_scale) + 2.0


def cross_entropy(
    config: Config, teacher: dict, drawn: Drawn, features: Array, noise: Array
) -> Array:
    """Nats a sample that the teacher is surprised by, for `noise` [N, B, T]."""
    told = WaveNet(config.teacher).apply({"params": teacher}, drawn.audio, features)
    again = drawn.mean + jnp.exp(drawn.log_scale) * noise
    return -jnp.mean(jax.vmap(partial(log_density, told))(again))


def power(audio: Array, frame: int) -> Array:
    """Power in each frequency, averaged over time [B, frame / 2 + 1]; half overlapped."""
    hop = frame // 2
    halves = audio[:, : audio.shape[1] // hop * hop].reshape(len(audio), -1, hop)
    frames = jnp.concatenate([halves[:, :-1], halves[:, 1:]], axis=-1)
    spectrum = jnp.fft.rfft(frames * jnp.hanning(frame)) / hop**0.5
    return jnp.mean(jnp.square(spectrum.real) + jnp.square(spectrum.imag), axis=1)


def power_loss(drawn: Array, recorded: Array, frame: int) -> Array:
    """Mean squared difference in power of waveforms [B, T] with the same features."""
    return jnp.mean(jnp.square(power(drawn, frame) - power(recorded, frame)))


def loss(config: Config, teacher: dict, params: dict, batch: dict[str, Array]) -> Array:
    """KL from student to teacher, in nats a sample, and the power loss."""
    features, audio = batch["features"], batch["audio"]
    first, second = jax.random.split(batch["key"])
    noise = jax.random.logistic(first, audio.shape)
    more = jax.random.logistic(second, (config.draws, *audio.shape))
    drawn = Student(config.flows).apply({"params": params}, noise, features)
    surprise = cross_entropy(config, teacher, drawn, features, more)
    divergence = surprise - entropy(drawn)
    return divergence + config.power * power_loss(drawn.audio, audio, config.frame)


def init(config: Config, key: Array) -> dict:
    """The student's parameters, drawn from `key`."""
    noise = jnp.zeros((1, config.teacher.hop))
    features = jnp.zeros((1, 1, config.teacher.features))
    return Student(config.flows).init(key, noise, features)["params"]


def start(config: Config, teacher: dict, key: Array) -> State:
    """The state before the first step; `stats` holds the teacher, which stays as it is."""
    state = new_state(init(config, key), wavenet.optimizer(config.rate))
    return state._replace(stats={"teacher": teacher})


def train_step_for(config: Config) -> TrainStep:
    """`step(state, batch)`: one update of the student."""

    def train_step(state: State, batch: dict[str, Array]) -> tuple[State, Array]:
        distil = partial(loss, config, state.stats["teacher"])
        return train_step_of(distil, wavenet.optimizer(config.rate))(state, batch)

    return train_step


def generate(config: Config, params: dict, features: Array, key: Array) -> Array:
    """Audio [B, T] for `features` [B, F, C], all samples at once."""
    shape = (len(features), features.shape[1] * config.teacher.hop)
    noise = jax.random.logistic(key, shape)
    drawn = Student(config.flows).apply({"params": params}, noise, features)
    return nearest_level(drawn.audio)


def learn(config: Config, teacher: dict, seed: int, steps: int) -> Iterator[Any]:
    """The state after each step of a distillation, and the step's loss."""
    step = jax.jit(train_step_for(config))
    state = once(partial(start, config))(teacher, jax.random.key(seed))
    for _, batch in zip(range(steps), made_batches(config, seed), strict=False):
        state, value = step(state, batch)
        yield state, value


def made_batches(config: Config, seed: int) -> Iterator[dict[str, Any]]:
    """Windows of made tones, each batch with a key for its noise."""
    key = jax.random.key(seed)
    for i, batch in enumerate(wavenet.made_batches(config.teacher, seed)):
        yield {**batch, "key": jax.random.fold_in(key, i)}


def train(seed: int, steps: int) -> Curve:
    """What each step of the distillation measured, after a teacher has learned."""
    teacher = wavenet.learn(TINY.teacher, seed, TEACHER_STEPS)
    for _, value in learn(TINY, teacher, seed, steps):
        yield {"loss": float(value)}


# -- targets and schedules ---------------------------------------------------------


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    key = jax.eval_shape(jax.random.key, 0)
    teacher = jax.eval_shape(partial(wavenet.init, config.teacher), key)
    state = jax.eval_shape(partial(start, config), teacher, key)
    batch = {**wavenet.batch_shapes(config.teacher), "key": key}
    return train_step_for(config), (state, batch)


def tiny():
    """Four flows of six layers below the tiny WaveNet, untrained, as arrays."""
    key = jax.random.key(0)
    teacher = once(partial(wavenet.init, TINY.teacher))(key)
    state = once(partial(start, TINY))(teacher, key)
    return train_step_for(TINY), (state, next(made_batches(TINY, seed=0)))


targets = sized(_train_target, SIZES)

DP = mw.data_parallel("data", "batch.**")

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+gates": [DP, GATES],
    "dp+gates+z3": [DP, GATES, mw.zero(3, "data")],
}

workload = Workload(
    name="parallel_wavenet",
    title="Parallel WaveNet",
    paper="van den Oord et al., Parallel WaveNet: Fast High-Fidelity Speech Synthesis, "
    "ICML 2018",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=150,
    schedules=schedules,
    best="dp+gates",
)

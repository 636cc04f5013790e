"""MLP-Mixer: alternating MLPs across patches and across channels.

I. Tolstikhin, N. Houlsby, A. Kolesnikov, L. Beyer et al., "MLP-Mixer: An all-MLP
Architecture for Vision", NeurIPS 2021. The parameters in its table 1 are those without
the classifier, as both of its sizes with 16-pixel patches show.

Pre-training as in its section 3 and appendix, less what is no part of the model: dropout,
stochastic depth, augmentation, and a rate that warms up and decays. Adam with weight
decay is AdamW here.

Letters: B batch, S patches, P pixels of a patch's side, C channels, K classes.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import optax
from jax import Array

import meshwright as mw
from zoo.attention import Mlp, Stack
from zoo.classifier import Classifier, array_target, forward_target, shape_target, train
from zoo.workload import Published, Workload, check_numbers, num_parameters, sized


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model, of its images and of its batch.

    token_width, channel_width: hidden units of the two MLPs, the paper's D_S and D_C.
    """

    layers: int
    channels: int
    token_width: int
    channel_width: int
    patch: int
    batch: int = 4096
    size: int = 224
    classes: int = 1000
    rate: float = 1e-3
    decay: float = 0.1

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.size % self.patch:
            what = f"images of {self.size} pixels"
            raise ValueError(f"patches of {self.patch} pixels do not divide {what}")


SIZES = {
    "s_32": Config(8, 512, 256, 2048, patch=32),
    "s_16": Config(8, 512, 256, 2048, patch=16),
    "b_32": Config(12, 768, 384, 3072, patch=32),
    "b_16": Config(12, 768, 384, 3072, patch=16),
    "l_32": Config(24, 1024, 512, 4096, patch=32),
    "l_16": Config(24, 1024, 512, 4096, patch=16),
    "h_14": Config(32, 1280, 640, 5120, patch=14),
}
TINY = Config(
    2, 64, 32, 128, patch=8, batch=32, size=32, classes=8, rate=2e-3, decay=0.01
)

# -- the model ---------------------------------------------------------------------


class Block(nn.Module):
    """One MLP that sees all patches of a channel, one that sees all of a patch."""

    token_width: int
    channel_width: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, S, C] of x [B, S, C]."""
        tokens = Mlp(self.token_width, bias=True, name="tokens")
        y = nn.LayerNorm(name="token_norm")(x)
        x = x + tokens(y.swapaxes(1, 2)).swapaxes(1, 2)
        channels = Mlp(self.channel_width, bias=True, name="channels")
        return x + channels(nn.LayerNorm(name="channel_norm")(x))


class Mixer(nn.Module):
    """The scores of an image's classes, from the mean of its patches."""

    config: Config

    @nn.compact
    def __call__(self, image: Array) -> Array:
        """[B, K] of images [B, S * P, S * P, 3]."""
        config = self.config
        square = (config.patch, config.patch)
        x = nn.Conv(config.channels, square, square, name="patches")(image)
        x = x.reshape(len(x), -1, config.channels)
        block = partial(Block, config.token_width, config.channel_width)
        x = Stack(block, config.layers, name="blocks")(x)
        x = jnp.mean(nn.LayerNorm(name="norm")(x), axis=1)
        return nn.Dense(config.classes, name="classes")(x)


# -- training, targets and schedules -----------------------------------------------


def classifier(config: Config) -> Classifier:
    """The model and AdamW, its gradients clipped to a norm of 1."""
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(config.rate, weight_decay=config.decay),
    )
    net = Mixer(config)
    return Classifier(net, optimizer, config.batch, config.size, config.classes)


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    return shape_target(classifier(config))


def tiny():
    """Two layers on 16 patches of made images, as arrays."""
    return array_target(classifier(TINY), seed=0)


def tiny_forward():
    """The scores of one made image, as `mw.deploy` wants them."""
    return forward_target(classifier(TINY), seed=0)


inference = {"tiny": tiny_forward}

targets = sized(_train_target, SIZES)

DP = mw.data_parallel("data")
MP = mw.megatron("model", vocabulary=False)

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+mp": [DP, MP],
    "dp+mp+z3": [DP, MP, mw.zero(3, "data")],
}
"""Both MLPs of a block are a pair of products, cut by hidden units."""


def num_weights(config: Config) -> int:
    """Parameters without the classifier."""
    _, (state, _) = _train_target(config)
    return num_parameters(state.params) - num_parameters(state.params["classes"])


_MILLIONS = {
    "s_32": 19, "s_16": 18, "b_32": 60, "b_16": 59, "l_32": 206, "l_16": 207, "h_14": 431
}  # fmt: skip


def _published(name: str, millions: int) -> Published:
    """Counts are printed in whole millions: half of one is 2.7 % of the smallest."""
    count = partial(num_weights, SIZES[name])
    title = f"Mixer-{name.capitalize().replace('_', '/')}"
    source = "Tolstikhin et al., 2021, table 1, whole millions"
    within = 0.5 / millions
    return Published(title, "parameters", millions * 1e6, count, source, within)


workload = Workload(
    name="mixer",
    title="MLP-Mixer",
    paper="Tolstikhin et al., MLP-Mixer: An all-MLP Architecture for Vision, "
    "NeurIPS 2021",
    tiny=tiny,
    full=tuple(targets.values()),
    train=partial(train, classifier(TINY)),
    steps=150,
    schedules=schedules,
    best="dp+mp+z3",
    published=tuple(_published(*entry) for entry in _MILLIONS.items()),
)

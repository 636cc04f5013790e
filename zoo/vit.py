"""The Vision Transformer: an image as a sequence of patches.

A. Dosovitskiy, L. Beyer, A. Kolesnikov et al., "An Image is Worth 16x16 Words:
Transformers for Image Recognition at Scale", ICLR 2021. `ti_16` and `s_16` are sizes of
H. Touvron et al., "Training data-efficient image transformers & distillation through
attention", ICML 2021, without its distillation.

AdamW stands for the paper's Adam with weight decay, and dropout is 0 unless a configuration
says more; not here: a rate that warms up and decays, and the change of resolution for
fine-tuning.

Letters: B batch, S height and width, P patch, N patches, D d_model, K classes.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import optax
from jax import Array

import meshwright as mw
from zoo.attention import Attention, Mlp, Stack
from zoo.classifier import Classifier, array_target, forward_target, shape_target, train
from zoo.workload import Published, Workload, check_numbers, num_parameters, sized


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model, of its images and of its batch.

    scan: one traced block for all layers, or every layer for itself.
    dropout: share of the elements that are dropped, by the random numbers "dropout", which
        a step of one's own gives to `apply`; the targets here give none.
    """

    layers: int
    d_model: int
    heads: int
    d_ff: int
    patch: int
    batch: int = 4096
    size: int = 224
    classes: int = 1000
    rate: float = 1e-3
    decay: float = 0.1
    scan: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.dropout >= 1:
            raise ValueError(f"dropout is {self.dropout}; wanted 0 or more, below 1")
        if self.d_model % self.heads:
            what = f"d_model {self.d_model}"
            raise ValueError(f"{self.heads} heads do not divide {what}")
        if self.size % self.patch:
            what = f"images of {self.size} pixels"
            raise ValueError(f"patches of {self.patch} pixels do not divide {what}")


SIZES = {
    "ti_16": Config(12, 192, 3, 768, patch=16, batch=1024),
    "s_16": Config(12, 384, 6, 1536, patch=16, batch=1024),
    "b_32": Config(12, 768, 12, 3072, patch=32),
    "b_16": Config(12, 768, 12, 3072, patch=16),
    "l_32": Config(24, 1024, 16, 4096, patch=32),
    "l_16": Config(24, 1024, 16, 4096, patch=16),
    "h_14": Config(32, 1280, 16, 5120, patch=14),
}
TINY = Config(
    2, 64, 4, 128, patch=8, batch=32, size=32, classes=8, rate=2e-3, decay=0.01
)

# -- the model ---------------------------------------------------------------------


def patches(image: Array, patch: int) -> Array:
    """The pixels [B, N, P * P * 3] of each patch of images [B, S, S, 3], row by row."""
    batch, size, _, colours = image.shape
    side = size // patch
    x = image.reshape(batch, side, patch, side, patch, colours)
    return x.swapaxes(2, 3).reshape(batch, side * side, patch * patch * colours)


class Block(nn.Module):
    """Attention among all patches, then an MLP, each on normalised values."""

    heads: int
    d_ff: int
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, N + 1, D] of x [B, N + 1, D]."""
        drop = nn.Dropout(self.dropout, deterministic=False)
        attention = Attention(
            self.heads, x.shape[-1] // self.heads, bias=True, name="attention"
        )
        x = x + drop(attention(nn.LayerNorm(name="attention_norm")(x)))
        mlp = Mlp(self.d_ff, bias=True, dropout=self.dropout, name="mlp")
        return x + drop(mlp(nn.LayerNorm(name="mlp_norm")(x)))


class ViT(nn.Module):
    """The scores of an image's classes, read from one more token than patches."""

    config: Config

    @nn.compact
    def __call__(self, image: Array) -> Array:
        """[B, K] of images [B, S, S, 3]."""
        config = self.config
        x = patches(image, config.patch)
        x = nn.Dense(config.d_model, name="embedding")(x)
        token = self.param("token", nn.initializers.zeros, (1, 1, config.d_model))
        token = jnp.broadcast_to(token, (len(x), 1, config.d_model))
        x = jnp.concatenate([token, x], axis=1)
        near_zero = nn.initializers.normal(0.02)  # as in BERT
        x = x + self.param("positions", near_zero, (1, *x.shape[1:]))
        x = nn.Dropout(config.dropout, deterministic=False)(x)
        block = partial(Block, config.heads, config.d_ff, config.dropout)
        x = Stack(block, config.layers, config.scan, name="blocks")(x)
        x = nn.LayerNorm(name="norm")(x[:, 0])
        return nn.Dense(config.classes, name="classes")(x)


# -- training, targets and schedules -----------------------------------------------


def classifier(config: Config) -> Classifier:
    """The model and AdamW."""
    optimizer = optax.adamw(config.rate, weight_decay=config.decay)
    net = ViT(config)
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
"""As for text: a block is cut by heads and by hidden units, the rest by images."""


def num_weights(config: Config) -> int:
    """Parameters, with the classes of ImageNet."""
    _, (state, _) = _train_target(config)
    return num_parameters(state.params)


_DOSOVITSKIY = "Dosovitskiy et al., 2021, table 1"
_TOUVRON = "Touvron et al., 2021, table 1"


def _published(name: str, value: float, source: str) -> Published:
    count = partial(num_weights, SIZES[name])
    title = f"ViT-{name.capitalize().replace('_', '/')}"
    return Published(title, "parameters", value, count, source)


workload = Workload(
    name="vit",
    title="Vision Transformer",
    paper="Dosovitskiy et al., An Image is Worth 16x16 Words: Transformers for Image "
    "Recognition at Scale, ICLR 2021",
    tiny=tiny,
    full=tuple(targets.values()),
    train=partial(train, classifier(TINY)),
    steps=150,
    schedules=schedules,
    best="dp+mp+z3",
    published=(
        _published("s_16", 22e6, _TOUVRON),
        _published("b_16", 86e6, _DOSOVITSKIY),
        _published("l_16", 307e6, _DOSOVITSKIY),
        _published("h_14", 632e6, _DOSOVITSKIY),
    ),
)

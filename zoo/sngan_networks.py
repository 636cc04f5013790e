"""The residual networks of SN-GAN: images from noise and a class, and how real they are.

T. Miyato et al., "Spectral Normalization for Generative Adversarial Networks", ICLR 2018,
appendix B.4, and T. Miyato, M. Koyama, "cGANs with Projection Discriminator", ICLR 2018:
the class enters the generator by its norms, the discriminator by an inner product.

Letters: B batch, S height and width, C channels, Z numbers of noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from zoo.workload import check_numbers

SMALLEST = 4
"""Height and width at which the generator starts."""


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of both networks and of the batch.

    generator: channels at 4 x 4 pixels, then after each doubling.
    discriminator: channels after each block; the first `halvings` blocks halve S.
    updates: of the discriminator for one of the generator.
    """

    size: int
    classes: int
    generator: tuple[int, ...]
    discriminator: tuple[int, ...]
    halvings: int
    batch: int
    noise: int = 128
    updates: int = 5
    rate: float = 2e-4

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("halvings",))
        doublings = len(self.generator) - 1
        if self.size != SMALLEST << doublings:
            raise ValueError(
                f"{doublings} doublings make images of {SMALLEST << doublings} pixels, "
                f"not {self.size}"
            )
        if self.halvings > len(self.discriminator) or self.size % 2**self.halvings:
            raise ValueError(
                f"{len(self.discriminator)} blocks cannot halve {self.size} pixels "
                f"{self.halvings} times"
            )


_CONV = nn.initializers.variance_scaling(2.0, "fan_avg", "uniform")
_OTHER = nn.initializers.glorot_uniform()


def _conv(channels: int, name: str, *, bias: bool) -> nn.Conv:
    return nn.Conv(channels, (3, 3), use_bias=bias, kernel_init=_CONV, name=name)


def _around(channels: int, *, bias: bool) -> nn.Dense:
    """The way around a block: a convolution 1 x 1."""
    return nn.Dense(channels, use_bias=bias, kernel_init=_OTHER, name="around")


def _norm(is_training: bool, is_scaled: bool, across: str | None) -> nn.BatchNorm:
    """Batch norm with the momentum and the epsilon of the authors' program."""
    return nn.BatchNorm(
        use_running_average=not is_training,
        momentum=0.9,
        epsilon=2e-5,
        use_bias=is_scaled,
        use_scale=is_scaled,
        axis_name=across,
        name="norm",
    )


def double(x: Array) -> Array:
    """`x` [B, S, S, C] at twice the size, each pixel four times."""
    return x.repeat(2, axis=1).repeat(2, axis=2)


def halve(x: Array) -> Array:
    """`x` [B, S, S, C] at half the size, each pixel a mean of four."""
    batch, size, _, channels = x.shape
    squares = x.reshape(batch, size // 2, 2, size // 2, 2, channels)
    return jnp.mean(squares, axis=(2, 4))


class ClassNorm(nn.Module):
    """Batch norm with a scale and a bias for each class (Dumoulin et al., 2017)."""

    classes: int
    is_training: bool
    across: str | None = None

    @nn.compact
    def __call__(self, x: Array, label: Array) -> Array:
        def of_class(name: str, first: nn.initializers.Initializer) -> Array:
            table = nn.Embed(self.classes, x.shape[-1], embedding_init=first, name=name)
            return table(label)[:, None, None]

        scale = of_class("scale", nn.initializers.ones_init())
        bias = of_class("bias", nn.initializers.zeros_init())
        return _norm(self.is_training, False, self.across)(x) * scale + bias


class GeneratorBlock(nn.Module):
    """Two convolutions at twice the size, with a shortcut.

    There are no biases, since the next norm removes constants.
    """

    channels: int
    norm: Callable[..., nn.Module]

    @nn.compact
    def __call__(self, x: Array, label: Array) -> Array:
        y = nn.relu(self.norm(name="norm_1")(x, label))
        y = _conv(self.channels, "conv_1", bias=False)(double(y))
        y = nn.relu(self.norm(name="norm_2")(y, label))
        y = _conv(self.channels, "conv_2", bias=False)(y)
        # on each pixel alone: the same before doubling as after, and cheaper
        return y + double(_around(self.channels, bias=False)(x))


class Generator(nn.Module):
    """Images [B, S, S, 3] in [-1, 1] from noise [B, Z] and labels [B].

    is_training: norms use the batch at hand rather than running means.
    across: the axis of replicas whose batches have common moments, if any.
    """

    config: Config
    is_training: bool
    across: str | None = None

    @nn.compact
    def __call__(self, noise: Array, label: Array) -> Array:
        first, *others = self.config.generator
        width = SMALLEST * SMALLEST * first
        x = nn.Dense(width, kernel_init=_OTHER, name="first")(noise)
        x = x.reshape(-1, SMALLEST, SMALLEST, first)
        norm = partial(ClassNorm, self.config.classes, self.is_training, self.across)
        for i, channels in enumerate(others):
            x = GeneratorBlock(channels, norm, name=f"block_{i}")(x, label)
        x = nn.relu(_norm(self.is_training, True, self.across)(x))
        return nn.tanh(nn.Conv(3, (3, 3), kernel_init=_OTHER, name="last")(x))


class DiscriminatorBlock(nn.Module):
    """Two convolutions, perhaps to half the size, and a way around."""

    channels: int
    halves: bool
    is_first: bool

    @nn.compact
    def __call__(self, x: Array) -> Array:
        shrink = halve if self.halves else lambda x: x
        between = self.channels if self.is_first else x.shape[-1]
        y = _conv(between, "conv_1", bias=True)(x if self.is_first else nn.relu(x))
        y = shrink(_conv(self.channels, "conv_2", bias=True)(nn.relu(y)))
        if self.halves or x.shape[-1] != self.channels:
            x = _around(self.channels, bias=True)(shrink(x))
        return x + y


class Discriminator(nn.Module):
    """How real [B] images [B, S, S, 3] of classes [B] are."""

    config: Config

    @nn.compact
    def __call__(self, x: Array, label: Array) -> Array:
        classes, widths = self.config.classes, self.config.discriminator
        for i, channels in enumerate(widths):
            halves = i < self.config.halvings
            x = DiscriminatorBlock(channels, halves, i == 0, name=f"block_{i}")(x)
        x = jnp.sum(nn.relu(x), axis=(1, 2))
        score = nn.Dense(1, kernel_init=_OTHER, name="last")(x)[:, 0]
        embed = nn.Embed(classes, widths[-1], embedding_init=_OTHER, name="embedding")
        return score + jnp.sum(embed(label) * x, axis=-1)

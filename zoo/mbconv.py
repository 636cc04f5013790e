"""Mobile inverted bottlenecks and their stages, of which EfficientNets consist.

A bottleneck expands its channels, applies a depthwise convolution, weighs every channel,
and projects to fewer channels (Sandler et al., MobileNetV2, CVPR 2018; squeeze and
excitation of Hu et al., CVPR 2018). EfficientNet-X (Li et al., CVPR 2021) adds a choice for
each stage: *fused*, one dense convolution in the place of the first two; *space to depth*,
fewer pixels with more channels each; *space to batch*, more images of fewer pixels; and the
activation.

Letters: B batch, S height and width, C channels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from zoo.attention import ACTIVATIONS
from zoo.workload import choose

DIVISOR = 8
"""Widths are multiples of it."""

_CONV_INIT = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
_DEPTHWISE_INIT = nn.initializers.variance_scaling(2.0, "fan_in", "normal")
"""Of the released code, whose "fan out" of a depthwise kernel is its window alone."""


class SpaceToDepth(Enum):
    """Where 2 x 2 pixels become one with four times the channels."""

    NONE = "none"
    BEGINS = "begins"  # a 2 x 2 convolution first; the whole stage stays in depth
    ENDS = "ends"  # the stage before has done the halving: stride 1 here


def scale_channels(channels: int, width: float) -> int:
    """`channels * width` as a multiple of 8, never less than 90 % of it."""
    wanted = channels * width
    rounded = max(DIVISOR, int(wanted + DIVISOR / 2) // DIVISOR * DIVISOR)
    return rounded if rounded >= 0.9 * wanted else rounded + DIVISOR


@dataclass(frozen=True, slots=True)
class Block:
    """One bottleneck.

    inside: channels between widening and narrowing; `is_widened` says whether
        a 1 x 1 convolution expands to them.
    squeeze: channels of squeeze and excitation between its two layers, 0 for none.
    into_depth: channels of a 2 x 2 convolution with stride 2 in front, 0 for none.
    has_skip: whether the input is added to the result where their shapes agree.
    """

    kernel: int
    stride: int
    inside: int
    outputs: int
    squeeze: int
    activation: str
    is_widened: bool
    is_fused: bool
    into_depth: int = 0
    has_skip: bool = True


@dataclass(frozen=True, slots=True)
class Stage:
    """A line of a network's table, at width and depth 1.

    stride: of the first of its blocks; the others have stride 1.
    expand: how much wider a block is inside.
    expanded: channels that `expand` multiplies in the first block, if not its inputs.
    has_skip: whether blocks add their input to their result where shapes agree.
    space_to_batch: whether the stage sees every second pixel of a row and column at a
        time, in four images for one.
    """

    repeats: int
    kernel: int
    stride: int
    expand: int
    inputs: int
    outputs: int
    activation: str = "silu"
    is_fused: bool = False
    space_to_depth: SpaceToDepth = SpaceToDepth.NONE
    expanded: int = 0
    has_skip: bool = True
    space_to_batch: bool = False

    def __post_init__(self) -> None:
        choose(self.activation, ACTIVATIONS, "activation")
        if self.stride not in (1, 2):
            raise ValueError(f"a stage has stride 1 or 2; got {self.stride}")
        wanted = {SpaceToDepth.BEGINS: 1, SpaceToDepth.ENDS: 2}
        stride = wanted.get(self.space_to_depth, self.stride)
        if self.stride != stride:
            raise ValueError(
                f"space to depth {self.space_to_depth.value} in a stage of stride "
                f"{stride}; got {self.stride}"
            )
        if self.space_to_batch and self.space_to_depth is SpaceToDepth.BEGINS:
            raise ValueError(
                "a stage goes from space to depth or to batch, not to both"
            )
        sizes = (self.repeats, self.kernel, self.expand, self.inputs, self.outputs)
        if min(sizes) < 1:
            raise ValueError(f"the sizes of a stage are 1 or more; got {self}")

    def blocks(self, width: float, depth: float, squeeze: float) -> tuple[Block, ...]:
        """The repeated blocks at this width and depth; all but the first are equal.

        squeeze: channels of squeeze and excitation for each one that comes in; 0 for
            blocks without it.
        """
        begins = self.space_to_depth is SpaceToDepth.BEGINS
        ends = self.space_to_depth is SpaceToDepth.ENDS
        in_depth = 4 if begins else 1
        inputs = in_depth * scale_channels(self.inputs, width)
        outputs = in_depth * scale_channels(self.outputs, width)
        expanded = in_depth * scale_channels(self.expanded or self.inputs, width)
        first = Block(
            # A window of k pixels reaches over (k + 1) / 2 of those that hold 2 x 2.
            kernel=(self.kernel + 1) // 2 if begins else self.kernel,
            stride=1 if ends else self.stride,
            inside=expanded * self.expand,
            outputs=outputs,
            # Reckoned from the channels that there were before space to depth.
            squeeze=max(1, int(inputs * squeeze) // in_depth) if squeeze else 0,
            activation=self.activation,
            is_widened=self.expand > 1,
            is_fused=self.is_fused,
            into_depth=inputs if begins else 0,
            has_skip=self.has_skip,
        )
        other = replace(
            first,
            stride=1,
            inside=outputs * self.expand,
            squeeze=max(1, int(outputs * squeeze)) if squeeze else 0,
            into_depth=0,
        )
        return (first, *[other] * (math.ceil(self.repeats * depth) - 1))


class Normalized(nn.Module):
    """A convolution without bias, and batch norm over all images of the batch.

    momentum: of the running means and variances, by which unseen images are judged.
    """

    channels: int
    kernel: int
    stride: int = 1
    is_depthwise: bool = False
    momentum: float = 0.99

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """[B, S / stride, S / stride, channels] of x [B, S, S, C]."""
        x = nn.Conv(
            self.channels,
            (self.kernel, self.kernel),
            strides=self.stride,
            feature_group_count=x.shape[-1] if self.is_depthwise else 1,
            use_bias=False,
            kernel_init=_DEPTHWISE_INIT if self.is_depthwise else _CONV_INIT,
            name="conv",
        )(x)
        return nn.BatchNorm(
            use_running_average=not train,
            momentum=self.momentum,
            epsilon=1e-3,
            name="norm",
        )(x)


class SqueezeExcite(nn.Module):
    """Every channel weighed by what all channels are like on average."""

    squeeze: int
    activation: Callable[[Array], Array]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, S, S, C] of x [B, S, S, C]."""
        mean = jnp.mean(x, axis=(1, 2))
        few = nn.Dense(self.squeeze, kernel_init=_CONV_INIT, name="squeeze")(mean)
        all_ = nn.Dense(x.shape[-1], kernel_init=_CONV_INIT, name="excite")(
            self.activation(few)
        )
        return x * jax.nn.sigmoid(all_)[:, None, None]


class MBConv(nn.Module):
    """The bottleneck that `block` describes, with a way around it where shapes allow."""

    block: Block
    momentum: float

    @nn.compact
    def __call__(self, x: Array, survival: Array, train: bool) -> Array:
        """[B, S / stride, S / stride, outputs] of x [B, S, S, C].

        survival: how likely the block is not skipped for an image (Huang et al., Deep
        Networks with Stochastic Depth, ECCV 2016).
        """
        block, around = self.block, x
        activation = ACTIVATIONS[block.activation]
        conv = partial(Normalized, momentum=self.momentum)

        if block.into_depth:
            into_depth = conv(block.into_depth, 2, 2, name="into_depth")
            x = activation(into_depth(x, train))
        if block.is_fused:
            expand = conv(block.inside, block.kernel, block.stride, name="expand")
            x = activation(expand(x, train))
        else:
            if block.is_widened:
                x = activation(conv(block.inside, 1, name="expand")(x, train))
            depthwise = conv(
                block.inside, block.kernel, block.stride, True, name="depthwise"
            )
            x = activation(depthwise(x, train))
        if block.squeeze:
            x = SqueezeExcite(block.squeeze, activation, name="excitation")(x)
        x = conv(block.outputs, 1, name="project")(x, train)

        if block.stride > 1 or x.shape != around.shape or not block.has_skip:
            return x
        return around + (self.keep(x, survival) if train else x)

    def keep(self, x: Array, survival: Array) -> Array:
        """`x`, or zero for an image that skips the block; the same on average."""
        shape = (len(x), 1, 1, 1)
        lives = jax.random.bernoulli(self.make_rng("dropout"), survival, shape)
        return jnp.where(lives, x / survival, 0)


def space_to_batch(x: Array) -> Array:
    """Every second pixel of rows and columns: [4 B, S / 2, S / 2, C] of [B, S, S, C]."""
    batch, size, _, channels = x.shape
    if size % 2:
        raise ValueError(f"space to batch halves the pixels of a side; got {size}")
    x = x.reshape(batch, size // 2, 2, size // 2, 2, channels)
    x = x.transpose(0, 2, 4, 1, 3, 5)
    return x.reshape(4 * batch, size // 2, size // 2, channels)


def batch_to_space(x: Array) -> Array:
    """The inverse of `space_to_batch`: [B, 2 S, 2 S, C] of [4 B, S, S, C]."""
    batch, size, _, channels = x.shape
    x = x.reshape(batch // 4, 2, 2, size, size, channels)
    x = x.transpose(0, 3, 1, 4, 2, 5)
    return x.reshape(batch // 4, 2 * size, 2 * size, channels)


class Blocks(nn.Module):
    """The blocks of one stage: the first, and a scan over the others, which are equal."""

    blocks: tuple[Block, ...]
    momentum: float
    space_to_batch: bool = False

    @nn.compact
    def __call__(self, x: Array, survival: np.ndarray, train: bool) -> Array:
        """`x` after all blocks; `survival` has one entry for each."""
        if self.space_to_batch:
            x = space_to_batch(x)
        first, *others = self.blocks
        x = MBConv(first, self.momentum, name="first")(x, survival[0], train)
        if others:
            scanned = nn.scan(
                lambda block, x, survival: (block(x, survival, train), None),
                variable_axes={"params": 0, "batch_stats": 0},
                split_rngs={"params": True, "dropout": True},
                length=len(others),
            )
            rest = MBConv(others[0], self.momentum, name="rest")
            x = scanned(rest, x, survival[1:])[0]
        return batch_to_space(x) if self.space_to_batch else x

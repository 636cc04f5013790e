"""Matrix products and convolutions of a program as batches of sums over K.

Letters in shapes: B products of a batch, M, N, K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from meshwright.features.codesign.accelerator.mapping.product import ArrayProduct
from meshwright.features.codesign.accelerator.workload.products import (
    CONVOLUTION,
    product_of,
)
from meshwright.program.ir import Op


@dataclass(frozen=True, slots=True, eq=False)
class NetworkProduct:
    """A product of the network that an array computes.

    data, weight: the number of the operand that streams, and that of the other.
    is_fixed: whether the other is a weight, which does not depend on the batch.
    """

    op: Op
    name: str
    data: int
    weight: int
    is_fixed: bool

    @property
    def mapped(self) -> ArrayProduct:
        """The product as a design maps it."""
        return product_of(self.op)

    def sides(self, data: Any, weight: Any) -> tuple[Any, Any]:
        """The operands as [B, K, M] and [B, K, N], of any numbers with a 0."""
        if self.op.kind == CONVOLUTION:
            return _windows(self.op, data), _kernel(self.op, weight)
        left, right = ("left", "right") if self.data == 0 else ("right", "left")
        return _side(self.op, data, left), _side(self.op, weight, right)

    def result(self, sums: Any) -> Any:
        """The result of the op from sums [B, N, M]."""
        shape = self.op.results[0].shape
        if self.op.kind == CONVOLUTION:
            return _channels_back(self.op, sums)
        if self.data == 0:
            sums = np.swapaxes(sums, 1, 2)
        return sums.reshape(shape)


def _side(op: Op, x: Any, side: str) -> Any:
    """An operand of a `dot_general` as [B, K, rest]."""
    numbers: Any = op.params["dimension_numbers"]
    at = 0 if side == "left" else 1
    contracted, batch = numbers[0][at], numbers[1][at]
    rest = [d for d in range(x.ndim) if d not in (*contracted, *batch)]
    sizes = [math.prod(x.shape[d] for d in dims) for dims in (batch, contracted, rest)]
    return np.transpose(x, (*batch, *contracted, *rest)).reshape(sizes)


def _windows(op: Op, x: Any) -> Any:
    """The windows [B, K, M] that a convolution's kernel meets, by group."""
    params: Any = op.params
    numbers = params["dimension_numbers"]
    kernel = op.operands[1].shape
    patches = np.asarray(
        _patches(
            np.asarray(x, np.float32),
            tuple(kernel[d] for d in numbers.rhs_spec[2:]),
            tuple(params["window_strides"]),
            tuple(map(tuple, params["padding"])),
            tuple(params["lhs_dilation"]),
            tuple(params["rhs_dilation"]),
            (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec),
        )
    )
    by_channel = np.transpose(patches, (numbers.out_spec[1], numbers.out_spec[0],
                                        *numbers.out_spec[2:]))  # fmt: skip
    groups = params["feature_group_count"]
    return by_channel.reshape(groups, by_channel.shape[0] // groups, -1)


def _patches(*given: Any) -> Any:
    x, shape, strides, padding, lhs, rhs, specs = given
    return _compiled_patches(
        x,
        filter_shape=shape,
        window_strides=strides,
        padding=padding,
        lhs_dilation=lhs,
        rhs_dilation=rhs,
        dimension_numbers=lax.ConvDimensionNumbers(*specs),
    )


_compiled_patches = jax.jit(
    lax.conv_general_dilated_patches,
    static_argnames=(
        "filter_shape", "window_strides", "padding", "lhs_dilation", "rhs_dilation",
        "dimension_numbers",
    ),
)  # fmt: skip


def _kernel(op: Op, w: Any) -> Any:
    """A convolution's kernel as [B, K, N]: by group, channels and window, outputs."""
    params: Any = op.params
    spec = params["dimension_numbers"].rhs_spec
    groups = params["feature_group_count"]
    whole = np.transpose(w, spec)  # outputs, channels, window
    outputs = whole.shape[0]
    return whole.reshape(groups, outputs // groups, -1).swapaxes(1, 2)


def _channels_back(op: Op, sums: Any) -> Any:
    """A convolution's result from sums [B, N, M]."""
    numbers: Any = op.params["dimension_numbers"]
    shape = op.results[0].shape
    spec = numbers.out_spec
    ordered = sums.reshape(
        shape[spec[1]], shape[spec[0]], *(shape[d] for d in spec[2:])
    )
    by_batch = ordered.swapaxes(0, 1)  # batch, channels, space
    return np.transpose(by_batch, np.argsort(spec))

"""The ops that arrays compute, as products: `dot_general`s and convolutions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.features.codesign.accelerator.mapping.folds import Extents
from meshwright.features.codesign.accelerator.mapping.product import ArrayProduct
from meshwright.predict.roofline.matrix_unit import product_extents, uses_matrix_unit
from meshwright.program.ir import Op, itemsize_bytes

CONVOLUTION = "conv_general_dilated"
PRODUCTS = ("dot_general", CONVOLUTION)


def has_product(op: Op) -> bool:
    """Whether an array computes the op."""
    return op.kind in PRODUCTS and uses_matrix_unit(op)


def product_of(op: Op) -> ArrayProduct:
    """The product that an array computes for a `dot_general` or a convolution."""
    sizes = [
        float(math.prod(v.shape) * itemsize_bytes(v.dtype))
        for v in (*op.operands[:2], op.results[0])
    ]
    if op.kind == "dot_general":
        left, right, result = sizes
        return ArrayProduct(Extents(*product_extents(op)), left, right, result)
    return _convolution(op, sizes)


def _convolution(op: Op, sizes: Sequence[float]) -> ArrayProduct:
    """A convolution as a product: positions x output channels, summed over a window."""
    params: Mapping[str, Any] = op.params
    numbers: Any = params["dimension_numbers"]
    kernel, result = op.operands[1].shape, op.results[0].shape
    groups = params["feature_group_count"] * params["batch_group_count"]
    outputs, inputs = (kernel[d] for d in numbers.rhs_spec[:2])
    taps = math.prod(kernel) // (outputs * inputs)
    positions = math.prod(result) // outputs
    halo, row_m = 0.0, 0  # of a convolution without spatial dims
    if len(numbers.rhs_spec) > 2:
        reach, stride = kernel[numbers.rhs_spec[2]], params["window_strides"][0]
        halo = max(0.0, (reach - stride) / stride)
        row_m = int(math.prod(result[d] for d in numbers.out_spec[3:]))
    extents = Extents(groups, positions, max(1, outputs // groups), inputs * taps)
    inside, kernel_bytes, outside = sizes
    return ArrayProduct(
        extents, inside, kernel_bytes, outside, halo, row_m, is_fixed=True
    )


def is_depthwise(op: Op) -> bool:
    """Whether each group of a convolution has one input channel."""
    if op.kind != CONVOLUTION:
        return False
    numbers: Any = op.params["dimension_numbers"]
    return op.operands[1].shape[numbers.rhs_spec[1]] == 1 and (
        op.params["feature_group_count"] > 1
    )

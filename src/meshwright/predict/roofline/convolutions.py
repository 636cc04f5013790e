"""Seconds of a convolution on a chip of many cores, whose library has two algorithms.

As an implicit matrix product (Chetlur et al., "cuDNN: Efficient primitives for deep
learning", 2014) it runs on the matrix unit, in tiles of positions and output channels.
With few channels in a group these tiles are almost empty. Then the lanes compute each
result directly, as they do for a depthwise convolution. The faster of both counts.
"""

import math
from typing import Any

from meshwright.machine import Chip
from meshwright.predict.roofline.matrix_unit import padded_extent
from meshwright.predict.roofline.product_tiles import Cores, tiled_product_s
from meshwright.program.ir import Op, itemsize_bytes
from meshwright.program.ops import work_of

CONVOLUTION = "conv_general_dilated"

_INSTRUCTIONS = 3
"""Instructions of a direct convolution for each multiply-add: a share of a vector load,
the conversion of a 16-bit operand to float32, and the multiply-add itself."""

_SUMMED = 32
"""Elements that one step of an implicit product sums, over channels and taps together, as
cuDNN's "indexed" kernels do; fewer leave a part of the step empty."""

DIRECT_SHARE = 0.5
"""Share of memory's rate that a direct convolution reaches, relative to elementwise ops,
where a machine does not state it ("depthwise").

Neighbouring results read overlapping windows, and the halo of each block is read again.
Kernels written for it are 2 to 3 times as fast as cuDNN's (Lu, Zhang, Wang, "Optimizing
Depthwise Separable Convolution Operations on GPUs", TPDS 2021)."""


def tiled_s(op: Op, rate: float, chip: Chip) -> float:
    """Seconds of a convolution as an implicit matrix product; rate: FLOP/s of all cores."""
    itemsize = max(itemsize_bytes(v.dtype) for v in op.operands[:2])
    cores = Cores(chip.num_cores, rate, chip.core_bytes_per_s)
    return tiled_product_s(_extents(op), itemsize, cores)


def direct_s(op: Op, chip: Chip) -> float:
    """Seconds of a convolution that the lanes compute result by result."""
    return work_of(op).flops * _INSTRUCTIONS / chip.vector_flops_per_s


def is_direct(op: Op, rate: float, chip: Chip) -> bool:
    """Whether the lanes compute a convolution, not the matrix unit."""
    return direct_s(op, chip) < tiled_s(op, rate, chip)


def _extents(op: Op) -> tuple[int, int, int, int]:
    """Groups, positions, output channels and summed elements of an implicit product."""
    params: Any = op.params
    numbers = params["dimension_numbers"]
    groups = params["feature_group_count"] * params["batch_group_count"]
    kernel, (result,) = op.operands[1].shape, op.results
    outputs, inputs = (kernel[d] for d in numbers.rhs_spec[:2])
    taps = math.prod(kernel) // (outputs * inputs)
    positions = math.prod(result.shape) // outputs
    return groups, positions, outputs // groups, padded_extent(inputs * taps, _SUMMED)

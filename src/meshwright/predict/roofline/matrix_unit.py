"""Products on the matrix unit, which pads their dims to multiples of its own size.

Padding of arrays in memory to tiles is in `predict/compilers/model/tiled_layouts.py`.
"""

import math
from functools import lru_cache
from typing import Any

from meshwright.machine import Chip
from meshwright.program.ir import Op
from meshwright.program.ops import work_of
from meshwright.program.ops.arithmetic.attention import BACKWARD, FORWARD
from meshwright.program.rules.registry import cost_of


def uses_matrix_unit(op: Op) -> bool:
    """Whether the matrix unit computes an op.

    It computes no product with a vector: compilers multiply and sum those element by
    element.
    """
    if op.kind != "dot_general":
        return op.kind in PADDED or cost_of(op) is not None
    _, rows, columns, _ = product_extents(op)
    return min(rows, columns) > 1


def padded_flops(op: Op, chip: Chip) -> int:
    """Operations of a product whose dims are padded to those of the matrix unit."""
    cost = cost_of(op)
    return PADDED[op.kind](op, chip) if cost is None else int(cost.products)


def product_flops(op: Op) -> int:
    """Operations that an op does in the matrix unit, without padding."""
    if not uses_matrix_unit(op):
        return 0
    cost = cost_of(op)
    return work_of(op).flops if cost is None else int(cost.products)


def padded_extent(extent: int, tile: int) -> int:
    """The extent rounded up to whole tiles."""
    return -(-extent // tile) * tile


def product_extents(op: Op) -> tuple[int, int, int, int]:
    """Extents of a product: batch, rows, columns and contracted dims, each multiplied."""
    left, right, *_ = op.operands
    return _extents(left.shape, right.shape, op.params["dimension_numbers"])


# Layers of one model share their products.
@lru_cache(maxsize=4096)
def _extents(
    left: tuple[int, ...], right: tuple[int, ...], numbers: Any
) -> tuple[int, int, int, int]:
    (left_sum, right_sum), (left_batch, right_batch) = numbers

    def extent(shape: tuple[int, ...], without: tuple[int, ...]) -> int:
        return math.prod(n for d, n in enumerate(shape) if d not in without)

    return (
        math.prod(left[d] for d in left_batch),
        extent(left, (*left_sum, *left_batch)),
        extent(right, (*right_sum, *right_batch)),
        math.prod(left[d] for d in left_sum),
    )


def _padded_product(op: Op, chip: Chip) -> int:
    """Operations 2 b m k n, with n and k padded to the unit and m to the rows of a tile."""
    batch, rows, columns, summed = product_extents(op)
    if rows < columns:
        rows, columns = columns, rows  # the wider side streams through the unit
    rows_tile, (sums_tile, columns_tile) = chip.tile[0], chip.unit
    padded = (
        padded_extent(rows, rows_tile)
        * padded_extent(columns, columns_tile)
        * padded_extent(summed, sums_tile)
    )
    return 2 * batch * padded


def _padded_convolution(op: Op, chip: Chip) -> int:
    """Operations of a convolution whose channels per group are padded to the unit."""
    params: Any = op.params
    kernel = op.operands[1].shape
    out_dim, in_dim, *_ = params["dimension_numbers"].rhs_spec
    groups = params["feature_group_count"] * params["batch_group_count"]
    outputs, inputs = kernel[out_dim] // groups, kernel[in_dim]
    taps = math.prod(kernel) // (kernel[out_dim] * kernel[in_dim])
    fill = padded_extent(outputs, chip.unit[1]) / outputs
    # A depthwise convolution sums too few products for the unit and runs outside of it.
    if inputs > 1:
        fill *= padded_extent(inputs * taps, chip.unit[0]) / (inputs * taps)
    return int(work_of(op).flops * fill)


PADDED = {
    **dict.fromkeys(
        (
            BACKWARD, FORWARD, "ragged_dot_general", "scaled_dot",
            "scaled_matmul_wrapper",
        ),
        lambda op, chip: work_of(op).flops,
    ),
    "conv_general_dilated": _padded_convolution,
    "dot_general": _padded_product,
}  # fmt: skip
"""Functions that count padded operations, by kind of op; only these ops use the matrix
unit."""

"""Products as the matrix unit computes them: dims filled up to those of the unit."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from meshwright.machine import Chip
from meshwright.program.ir import Op
from meshwright.program.ops import work_of


def uses_matrix_unit(op: Op) -> bool:
    """Whether an op is a product that the matrix unit computes.

    A product with vectors is none: compilers multiply and sum it element by element.
    """
    if op.kind != "dot_general":
        return op.kind in PADDED
    _, rows, columns, _ = product_extents(op)
    return min(rows, columns) > 1


def padded_flops(op: Op, chip: Chip) -> int:
    """Operations of a product whose dims are filled up to those of the matrix unit."""
    return PADDED[op.kind](op, chip)


def _up(extent: int, tile: int) -> int:
    return -(-extent // tile) * tile


def product_extents(op: Op) -> tuple[int, int, int, int]:
    """Of a product the extents that are shared, its rows, its columns, and the sum."""
    left, right, *_ = op.operands
    return _extents(left.shape, right.shape, op.params["dimension_numbers"])


# Programs of many layers ask for the same products again and again.
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
    """2 b m k n, with n and k filled up to the unit and m to the rows of a tile."""
    batch, rows, columns, summed = product_extents(op)
    if rows < columns:
        rows, columns = columns, rows  # the wider side streams through the unit
    rows_tile, (sums_tile, columns_tile) = chip.tile[0], chip.unit
    padded = _up(rows, rows_tile) * _up(columns, columns_tile) * _up(summed, sums_tile)
    return 2 * batch * padded


def _padded_convolution(op: Op, chip: Chip) -> int:
    """As many times more as output and input channels of a group are filled up."""
    params: Any = op.params
    kernel = op.operands[1].shape
    made, of, *_ = params["dimension_numbers"].rhs_spec
    groups = params["feature_group_count"] * params["batch_group_count"]
    outputs, inputs = kernel[made] // groups, kernel[of]
    taps = math.prod(kernel) // (kernel[made] * kernel[of])
    fill = _up(outputs, chip.unit[1]) / outputs
    # A depthwise convolution has too few products for the unit: it runs beside it.
    if inputs > 1:
        fill *= _up(inputs * taps, chip.unit[0]) / (inputs * taps)
    return int(work_of(op).flops * fill)


PADDED = {
    "conv_general_dilated": _padded_convolution,
    "dot_general": _padded_product,
    "ragged_dot_general": lambda op, chip: work_of(op).flops,
}

"""Seconds of one unit of work on one chip: what bounds it, by the roofline.

A unit is bound by the matrix unit, by the vector unit, by main memory, or by what it
takes to start anything at all (Williams, Waterman, Patterson, "Roofline", CACM 2009).
Each bound is reached in part only; a machine may say in what part, by the size of the
work.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from meshwright.ir import Op
from meshwright.machine import Chip
from meshwright.rules import Work, work_of
from meshwright.rules.kernel import kernel_of

TRANSCENDENTAL_FLOPS = 16
"""Vector operations for one exponential or its like: a polynomial and its scaling."""

MOVE_FLOPS = 8
"""Vector operations in the time that one element takes into or out of registers."""


class Bound(Enum):
    """What a unit's time is made of."""

    MATRIX = "matrix"
    VECTOR = "vector"
    MEMORY = "memory"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a unit reads and writes.

    num_bytes: from and to main memory. elements: what passes through the registers of
    the vector unit, so not the operands of a product as they are.
    """

    num_bytes: float
    elements: int = 0


@dataclass(frozen=True, slots=True)
class UnitTime:
    """Seconds of a unit, and what bounds it."""

    seconds: float
    bound: Bound


def unit_time(op: Op, work: Work, traffic: Traffic, chip: Chip) -> UnitTime:
    """The time of a unit with `op` at its root; `work` is that of all its ops."""
    is_product = fills_matrix_unit(op)
    matrix_flops = padded_flops(op, chip) if is_product else 0
    vector_flops = work.flops - (work_of(op).flops if is_product else 0)
    vector_flops += TRANSCENDENTAL_FLOPS * work.transcendentals
    vector_flops += MOVE_FLOPS * traffic.elements
    times = {
        Bound.MATRIX: _product_s(op, matrix_flops, chip),
        Bound.VECTOR: vector_flops
        / (chip.vector_flops_per_s * reached_share(chip, "vector", vector_flops)),
        Bound.MEMORY: traffic.num_bytes
        / (chip.hbm_bytes_per_s * reached_share(chip, "memory", traffic.num_bytes)),
        Bound.LAUNCH: chip.launch_s,
    }
    bound = max(times, key=lambda b: times[b])
    return UnitTime(times[bound], bound)


def alike(op: Op) -> Hashable:
    """Units with the same work and traffic take as long if their roots are alike."""
    kernel = kernel_of(op)
    if kernel is not None:
        return kernel
    if op.kind == "dot_general":
        left, right, *_ = op.operands
        numbers = op.params["dimension_numbers"]
        return left.shape, left.dtype, right.shape, right.dtype, numbers
    return op if op.kind in _PADDED else None


def fills_matrix_unit(op: Op) -> bool:
    """Whether an op is a product that the matrix unit computes.

    A product with vectors is none: compilers multiply and sum it element by element.
    """
    if op.kind != "dot_general":
        return op.kind in _PADDED
    _, rows, columns, _ = _extents(op)
    return min(rows, columns) > 1


def _product_s(op: Op, flops: float, chip: Chip) -> float:
    """Seconds in the matrix unit; operands of two dtypes go at the mean of their paces."""
    if not flops:
        return 0.0
    name = "convolution" if op.kind == "conv_general_dilated" else "product"
    paces = [1 / chip.peak_flops_per_s(v.dtype) for v in op.operands[:2]]
    pace = sum(paces) / len(paces)
    return flops * pace / reached_share(chip, name, flops)


def reached_share(chip: Chip, name: str, size: float) -> float:
    """Of a peak that work of a class and size reaches."""
    curve = chip.efficiency.get(name)
    return 1.0 if curve is None or size <= 0 else curve.share(size)


def padded_flops(op: Op, chip: Chip) -> int:
    """Operations of a product whose dims are filled up to those of the matrix unit."""
    return _PADDED[op.kind](op, chip)


def _up(extent: int, tile: int) -> int:
    return -(-extent // tile) * tile


def _extents(op: Op) -> tuple[int, int, int, int]:
    """Of a product the extents that are shared, its rows, its columns, and the sum."""
    params: Any = op.params
    (left_sum, right_sum), (left_batch, right_batch) = params["dimension_numbers"]
    left, right = (a.shape for a in op.operands[:2])

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
    batch, rows, columns, summed = _extents(op)
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


_PADDED = {
    "conv_general_dilated": _padded_convolution,
    "dot_general": _padded_product,
    "ragged_dot_general": lambda op, chip: work_of(op).flops,
}

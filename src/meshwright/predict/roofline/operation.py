"""Seconds of one unit of work on one chip: what bounds it, by the roofline.

A unit is bound by the matrix unit, by the vector unit, by main memory, or by what it
takes to start anything at all (Williams, Waterman, Patterson, "Roofline", CACM 2009).
Each bound is reached in part only; a machine may say in what part, by the size of the
work.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from meshwright.machine import Chip
from meshwright.predict.roofline.bound import Bound, UnitTime, reached_share
from meshwright.predict.roofline.padding import PADDED, fills_matrix_unit, padded_flops
from meshwright.predict.roofline.pallas_time import kernel_time
from meshwright.predict.roofline.tiles import Streams, bytes_read_again
from meshwright.program.ir import Op
from meshwright.program.ops import OpWork, work_of
from meshwright.program.rules.pallas_kernel import kernel_of

TRANSCENDENTAL_FLOPS = 16
"""Vector operations for one exponential or its like: a polynomial and its scaling."""

MOVE_FLOPS = 8
"""Vector operations in the time that one element takes into or out of registers."""


class Traffic(NamedTuple):
    """What a unit reads and writes.

    num_bytes: from and to main memory, each array once. elements: what passes through
    the registers of the vector unit, so not the operands of a product as they are.
    streams: of a product, what it may have to read more than once.
    """

    num_bytes: float
    elements: int = 0
    streams: Streams | None = None


def unit_time(op: Op, work: OpWork, traffic: Traffic, chip: Chip) -> UnitTime:
    """The time of a unit with `op` at its root; `work` is that of all its ops.

    Hand-written kernels say themselves what they work and move.
    """
    kernel = kernel_of(op)
    if kernel is not None:
        return kernel_time(kernel, chip)
    times = bound_times(op, work, traffic, chip)
    bound = max(times, key=lambda b: times[b])
    return UnitTime(times[bound], bound)


def bound_times(
    op: Op, work: OpWork, traffic: Traffic, chip: Chip
) -> dict[Bound, float]:
    """Seconds by each bound, if no other held; of no kernel."""
    is_product = fills_matrix_unit(op)
    matrix_flops = padded_flops(op, chip) if is_product else 0
    vector_flops = work.flops - (work_of(op).flops if is_product else 0)
    vector_flops += TRANSCENDENTAL_FLOPS * work.transcendentals
    vector_flops += MOVE_FLOPS * traffic.elements
    return {
        Bound.MATRIX: _product_s(op, matrix_flops, chip),
        Bound.VECTOR: vector_flops
        / (chip.vector_flops_per_s * reached_share(chip, "vector", vector_flops)),
        Bound.MEMORY: _memory_s(op, traffic, chip),
        Bound.LAUNCH: chip.launch_s,
    }


def alike(op: Op) -> Hashable:
    """Units with the same work and traffic take as long if their roots are alike."""
    kernel = kernel_of(op)
    if kernel is not None:
        return kernel
    if op.kind == "dot_general":
        left, right, *_ = op.operands
        numbers = op.params["dimension_numbers"]
        return left.shape, left.dtype, right.shape, right.dtype, numbers
    return op if op.kind in PADDED else None


def _memory_s(op: Op, traffic: Traffic, chip: Chip) -> float:
    """Seconds for each array once, and for what a product reads again."""
    once = traffic.num_bytes
    seconds = once / (chip.hbm_bytes_per_s * reached_share(chip, "memory", once))
    if traffic.streams is not None:
        again = bytes_read_again(op, traffic.streams, chip)
        seconds += again / (chip.hbm_bytes_per_s * reached_share(chip, "again", again))
    return seconds


def _product_s(op: Op, flops: float, chip: Chip) -> float:
    """Seconds in the matrix unit; operands of two dtypes go at the mean of their paces."""
    if not flops:
        return 0.0
    name = "convolution" if op.kind == "conv_general_dilated" else "product"
    paces = [1 / chip.peak_flops_per_s(v.dtype) for v in op.operands[:2]]
    pace = sum(paces) / len(paces)
    return flops * pace / reached_share(chip, name, flops)

"""Seconds of one kernel on one chip, by the roofline.

A kernel is bound by the matrix unit, by the vector unit, by main memory, or by its
launch. It reaches only a share of each peak; a machine may say which share, by the
amount of work.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from meshwright.machine import Chip
from meshwright.predict.roofline.bound import (
    Bound,
    KernelTime,
    binding_time,
    calibrated_efficiency,
)
from meshwright.predict.roofline.padding import PADDED, padded_flops, uses_matrix_unit
from meshwright.predict.roofline.pallas_time import pallas_kernel_time
from meshwright.predict.roofline.tiles import Streams, reread_bytes
from meshwright.program.ir import Op
from meshwright.program.ops import OpWork, work_of
from meshwright.program.rules.pallas_kernel import kernel_of

TRANSCENDENTAL_FLOPS = 16
"""Vector operations of one exponential, logarithm or the like: a polynomial, scaled."""

MOVE_FLOPS = 8
"""Vector operations in the time in which one element is loaded into a register, or
stored from one."""


class KernelTraffic(NamedTuple):
    """Bytes and elements that a kernel reads and writes.

    num_bytes: from and to main memory, each array once. elements: those that pass through
    the registers of the vector unit; operands of a product that enter the matrix unit as
    they are do not. streams: the arrays that a product may have to read more than once.
    """

    num_bytes: float
    elements: int = 0
    streams: Streams | None = None


def kernel_time(op: Op, work: OpWork, traffic: KernelTraffic, chip: Chip) -> KernelTime:
    """The time of a kernel with `op` at its root; `work` is that of all its ops.

    Pallas kernels state their own work and traffic.
    """
    kernel = kernel_of(op)
    if kernel is not None:
        return pallas_kernel_time(kernel, chip)
    return binding_time(bound_times(op, work, traffic, chip))


def bound_times(
    op: Op, work: OpWork, traffic: KernelTraffic, chip: Chip
) -> dict[Bound, float]:
    """Seconds in each resource as if it were the only limit; not for Pallas kernels."""
    flops = vector_flops(op, work, traffic.elements)
    return {
        Bound.MATRIX: matrix_s(op, chip),
        Bound.VECTOR: flops
        / (chip.vector_flops_per_s * calibrated_efficiency(chip, "vector", flops)),
        Bound.MEMORY: _memory_s(op, traffic, chip),
        Bound.LAUNCH: chip.launch_s,
    }


def vector_flops(op: Op, work: OpWork, elements: int = 0) -> int:
    """Operations of the vector unit in a kernel with `op` at its root.

    work: of all ops of the kernel. elements: those that pass through registers.
    """
    flops = work.flops - (work_of(op).flops if uses_matrix_unit(op) else 0)
    return flops + TRANSCENDENTAL_FLOPS * work.transcendentals + MOVE_FLOPS * elements


def matrix_s(op: Op, chip: Chip) -> float:
    """Seconds of an op in the matrix unit, 0 if it does not use it.

    Operands of two dtypes take the mean of the seconds that each dtype takes.
    """
    if not uses_matrix_unit(op):
        return 0.0
    flops = padded_flops(op, chip)
    if not flops:
        return 0.0
    name = "convolution" if op.kind == "conv_general_dilated" else "product"
    paces = [1 / chip.peak_flops_per_s(v.dtype) for v in op.operands[:2]]
    pace = sum(paces) / len(paces)
    return flops * pace / calibrated_efficiency(chip, name, flops)


def timing_key(op: Op) -> Hashable:
    """A key of the root of a kernel.

    Kernels with the same work and traffic take the same time if their keys are equal.
    """
    kernel = kernel_of(op)
    if kernel is not None:
        return kernel
    if op.kind == "dot_general":
        left, right, *_ = op.operands
        numbers = op.params["dimension_numbers"]
        return left.shape, left.dtype, right.shape, right.dtype, numbers
    return op if op.kind in PADDED else None


def _memory_s(op: Op, traffic: KernelTraffic, chip: Chip) -> float:
    """Seconds to move each array once, and the rereads of a tiled product."""
    once = traffic.num_bytes
    efficiency = calibrated_efficiency(chip, "memory", once)
    seconds = once / (chip.hbm_bytes_per_s * efficiency)
    if traffic.streams is not None:
        reread = reread_bytes(op, traffic.streams, chip)
        efficiency = calibrated_efficiency(chip, "reread", reread)
        seconds += reread / (chip.hbm_bytes_per_s * efficiency)
    return seconds

"""Seconds of one kernel on one chip, by the roofline.

A kernel takes as long as the resource that needs longest for it: the matrix unit, the
vector unit, main memory, or its launch (Williams, Waterman, Patterson, "Roofline: an
insightful visual performance model for multicore architectures", CACM 2009). It reaches
only a share of each peak; a machine may say which share, by the amount of work.

Only blocks of a Pallas kernel pass through main memory. In straight-line code, such as a
loop body, one very long instruction may feed every unit at once, so that the busiest unit
takes the time; the bodies of a step run one after another.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.machine import Chip
from meshwright.predict.roofline.convolutions import (
    CONVOLUTION,
    DIRECT_SHARE,
    direct_s,
    is_direct,
    tiled_s,
)
from meshwright.predict.roofline.matrix_unit import (
    PADDED,
    padded_flops,
    product_extents,
    product_flops,
    uses_matrix_unit,
)
from meshwright.predict.roofline.product_tiles import (
    PRODUCT_EDGE,
    Cores,
    tiled_product_s,
)
from meshwright.predict.roofline.rereads import Streams, reread_bytes
from meshwright.program.ir import Op, itemsize_bytes
from meshwright.program.ops import OpWork, Trait, has_trait
from meshwright.program.ops.arithmetic.attention import BACKWARD, FORWARD
from meshwright.program.rules.pallas_work import (
    KernelSection,
    PallasKernel,
    kernel_of,
)
from meshwright.program.rules.registry import cost_of

MOVE_FLOPS = 8
"""Vector operations in the time in which one element is loaded into a register, or
stored from one."""

ALUS = 4
"""Number of arithmetic units of the vector unit. Besides them there is one unit for
transcendentals and one for stores; each processes one register per cycle. These are the
slots of an instruction on v5e and v5p, as libtpu 0.0.50 prints them."""

STEP_CYCLES = 160
"""Cycles of a grid step outside of its bodies. libtpu 0.0.50 makes 219, 100 and 158
instructions outside of the branches of splash attention's three kernels on v5e."""


class Bound(Enum):
    """The resource that limits a kernel."""

    MATRIX = "matrix"
    VECTOR = "vector"
    MEMORY = "memory"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Seconds of a kernel, and the resource that limits it."""

    seconds: float
    bound: Bound


class KernelTraffic(NamedTuple):
    """Bytes and elements that a kernel reads and writes.

    num_bytes: from and to main memory, each array once. elements: those that pass
    through registers, not directly to the matrix unit. streams: the arrays that a
    product may have to read more than once.
    """

    num_bytes: float
    elements: int = 0
    streams: Streams | None = None


def binding_time(times: Mapping[Bound, float]) -> KernelTime:
    """The longest time and its resource; of equal times, the first."""
    bound = max(times, key=lambda b: times[b])
    return KernelTime(times[bound], bound)


def roofline_s(*times: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """The longest of the seconds in each resource, element by element."""
    return reduce(np.maximum, times)  # pyright: ignore[reportReturnType]


def calibrated_efficiency(chip: Chip, name: str, size: float) -> float:
    """The share of a hardware peak that work reaches, as the machine's file states it.

    name: class of the work, as in the table `efficiency` of machine files.
    size: amount of the work.
    """
    curve = chip.efficiency.get(name)
    return 1.0 if curve is None or size <= 0 else curve.share(size)


def kernel_time(op: Op, work: OpWork, traffic: KernelTraffic, chip: Chip) -> KernelTime:
    """The time of a kernel with `op` at its root; work: of all ops of the kernel.

    For Pallas kernels, work and traffic are those that `PallasKernel` has.
    """
    kernel = kernel_of(op)
    if kernel is not None:
        return pallas_kernel_time(kernel, chip)
    return binding_time(bound_times(op, work, traffic, chip))


def bound_times(
    op: Op, work: OpWork, traffic: KernelTraffic, chip: Chip, num_parts: int = 1
) -> dict[Bound, float]:
    """Seconds in each resource as if it were the only limit; not for Pallas kernels.

    num_parts: number of equal parts into which the kernel's work and traffic are divided;
        the seconds are those of one part.
    An op whose results have no elements is no kernel (XLA: `ZeroSizedHloElimination`).
    """
    flops = vector_flops(op, work, chip, traffic.elements) / num_parts
    product_s, lanes_s = matrix_s(op, chip) / num_parts, 0.0
    if _runs_on_lanes(op, chip):
        product_s, lanes_s = 0.0, product_s
    is_empty = bool(op.results) and all(0 in result.shape for result in op.results)
    return {
        Bound.MATRIX: product_s,
        Bound.VECTOR: lanes_s
        + flops
        / (chip.vector_flops_per_s * calibrated_efficiency(chip, "vector", flops)),
        Bound.MEMORY: _memory_s(op, traffic, chip, num_parts),
        Bound.LAUNCH: 0.0 if is_empty else chip.launch_s,
    }


def vector_flops(op: Op, work: OpWork, chip: Chip, elements: int = 0) -> float:
    """Operations of the vector unit in a kernel with `op` at its root.

    work: of all ops of the kernel. elements: those that pass through registers.
    """
    flops = work.flops - product_flops(op)
    flops += chip.transcendental_flops * work.transcendentals
    return flops + MOVE_FLOPS * elements


DEPTHWISE = "depthwise"
"""Class of the memory rate of convolutions that lanes compute directly."""

REDUCTION = "reduction"
"""Class of the memory rate of kernels that reduce."""

_EFFICIENCY = {
    CONVOLUTION: "convolution",
    FORWARD: "attention",
    BACKWARD: "attention_gradient",
}
"""The class of an op's efficiency, where it is not "product"."""


def matrix_s(op: Op, chip: Chip) -> float:
    """Seconds of an op in the matrix unit, 0 if it does not use it.

    Operands of two dtypes take the mean of the seconds that each dtype takes.
    """
    flops = padded_flops(op, chip) if uses_matrix_unit(op) else 0
    if not flops:
        return 0.0
    rate = _product_rate(op, flops, chip)
    if chip.num_cores == 1:
        return flops / rate
    if op.kind == CONVOLUTION:
        return min(tiled_s(op, rate, chip), direct_s(op, chip))
    if op.kind != "dot_general":
        return flops / rate
    itemsize = max(itemsize_bytes(v.dtype) for v in op.operands[:2])
    cores = Cores(chip.num_cores, rate, chip.core_bytes_per_s)
    return tiled_product_s(product_extents(op), itemsize, cores, PRODUCT_EDGE)


def _product_rate(op: Op, flops: float, chip: Chip) -> float:
    """FLOP/s that products of this size and dtype reach in the matrix unit."""
    name = _EFFICIENCY.get(op.kind, "product")
    if name not in chip.efficiency:
        name = "product"
    paces = [1 / chip.peak_flops_per_s(v.dtype) for v in op.operands[:2]]
    return calibrated_efficiency(chip, name, flops) / (sum(paces) / len(paces))


def _runs_on_lanes(op: Op, chip: Chip) -> bool:
    """Whether the lanes of a chip of many cores compute a convolution directly."""
    if op.kind != CONVOLUTION or chip.num_cores == 1:
        return False
    flops = padded_flops(op, chip)
    return is_direct(op, _product_rate(op, flops, chip), chip)


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
    if op.kind in PADDED or cost_of(op) is not None:
        return op
    return REDUCTION if has_trait(op.kind, Trait.REDUCTION) else None


def _memory_s(op: Op, traffic: KernelTraffic, chip: Chip, num_parts: int = 1) -> float:
    """Seconds to move each array once, and the rereads of a tiled product."""
    once = traffic.num_bytes / num_parts
    efficiency = calibrated_efficiency(chip, _memory_class(op, chip), once)
    if _runs_on_lanes(op, chip):
        is_stated = DEPTHWISE in chip.efficiency
        stated = calibrated_efficiency(chip, DEPTHWISE, once)
        efficiency = stated if is_stated else DIRECT_SHARE * efficiency
    seconds = once / (chip.hbm_bytes_per_s * efficiency)
    if traffic.streams is not None:
        reread = reread_bytes(op, traffic.streams, chip) / num_parts
        efficiency = calibrated_efficiency(chip, "reread", reread)
        seconds += reread / (chip.hbm_bytes_per_s * efficiency)
    return seconds


def _memory_class(op: Op, chip: Chip) -> str:
    """The class of the memory rate of a kernel with `op` at its root."""
    is_stated = REDUCTION in chip.efficiency and has_trait(op.kind, Trait.REDUCTION)
    return REDUCTION if is_stated else "memory"


def pallas_kernel_time(kernel: PallasKernel, chip: Chip) -> KernelTime:
    """The time of the units, or of the blocks that move while the units work.

    Products and main memory reach their calibrated shares of the peaks; the vector unit,
    fed from registers, reaches its peak.
    """
    spent = [_section_time(section, chip) for section in kernel.sections]
    counted = kernel.counted.flops
    scale = kernel.work.flops / counted if counted else 1.0
    units_s = scale * sum(time.seconds for time in spent)
    if chip.clock_hz:
        units_s += kernel.steps * STEP_CYCLES / chip.clock_hz
    bound = max(spent, key=lambda t: t.seconds).bound if spent else Bound.LAUNCH
    efficiency = calibrated_efficiency(chip, "memory", kernel.num_bytes)
    memory_s = kernel.num_bytes / (chip.hbm_bytes_per_s * efficiency)
    return max(
        KernelTime(units_s, bound),
        KernelTime(memory_s, Bound.MEMORY),
        KernelTime(chip.launch_s, Bound.LAUNCH),
        key=lambda time: time.seconds,
    )


def _section_time(section: KernelSection, chip: Chip) -> KernelTime:
    """The time of the busiest unit in one section."""
    rest = section.rest
    slots = max(rest.flops, ALUS * rest.transcendentals, ALUS * section.stored)
    matrix_s = sum(_product_s(op, runs, chip) for op, runs in section.products)
    vector_s = slots / chip.vector_flops_per_s
    return binding_time({Bound.MATRIX: matrix_s, Bound.VECTOR: vector_s})


def _product_s(op: Op, runs: int, chip: Chip) -> float:
    """Seconds in the matrix unit; float32 blocks pass through it once, as bfloat16.

    That is the default precision of `jax.lax.dot`; higher ones run at float32's rate.
    """
    flops = runs * padded_flops(op, chip)
    dtype = op.operands[0].dtype
    if dtype == "float32" and "HIGH" not in str(op.params.get("precision")):
        dtype = "bfloat16"
    efficiency = calibrated_efficiency(chip, "product", flops)
    return flops / (chip.peak_flops_per_s(dtype) * efficiency)

"""Seconds of a Pallas kernel on one chip.

Values stay in scratch memory and registers: only blocks pass through main memory. In
straight-line code, such as a loop body, one very long instruction may feed every unit at
once, so that the busiest unit takes the time; the bodies of a step run one after another.
"""

from __future__ import annotations

from meshwright.machine import Chip
from meshwright.predict.roofline.bound import (
    Bound,
    KernelTime,
    binding_time,
    calibrated_efficiency,
)
from meshwright.predict.roofline.padding import padded_flops
from meshwright.program.ir import Op
from meshwright.program.rules.pallas_kernel import KernelSection, PallasKernel

ALUS = 4
"""Arithmetic units of the vector unit. One unit for transcendentals and one for stores
stand beside them; each takes one register a cycle. These are the slots of an instruction
on v5e and v5p, as libtpu 0.0.50 prints them."""

STEP_CYCLES = 160
"""Cycles of a grid step outside of its bodies. libtpu 0.0.50 makes 219, 100 and 158
instructions outside of the branches of splash attention's three kernels on v5e."""


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

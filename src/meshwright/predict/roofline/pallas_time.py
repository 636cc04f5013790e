"""Seconds of a hand-written kernel on one chip.

Its values stay in scratch memory and registers: only its blocks pass through main
memory. Inside of a branch or loop body one instruction may feed every unit at once, so
that the busiest takes the time; the bodies of a step follow one another.
"""

from __future__ import annotations

from meshwright.machine import Chip
from meshwright.predict.roofline.bound import Bound, UnitTime, reached_share
from meshwright.predict.roofline.padding import padded_flops
from meshwright.program.ir import Op
from meshwright.program.rules.pallas_kernel import PallasKernel, Stretch

ALUS = 4
"""Of the vector unit, beside one unit for transcendentals and one that stores, each of
which takes one register a cycle: slots of the instructions of v5e and v5p, as libtpu
0.0.50 prints them."""

STEP_CYCLES = 160
"""Of a step beside its bodies: instructions that libtpu 0.0.50 makes outside of the
branches of splash attention's three kernels on v5e, 219, 100 and 158."""


def kernel_time(kernel: PallasKernel, chip: Chip) -> UnitTime:
    """What its units take, or its blocks to come and go while they work.

    Shares of peaks are those of products and of main memory; the vector unit, fed from
    registers, reaches its own.
    """
    spent = [_stretch_time(stretch, chip) for stretch in kernel.stretches]
    counted = kernel.counted.flops
    scale = kernel.work.flops / counted if counted else 1.0
    units_s = scale * sum(time.seconds for time in spent)
    if chip.clock_hz:
        units_s += kernel.steps * STEP_CYCLES / chip.clock_hz
    bound = max(spent, key=lambda t: t.seconds).bound if spent else Bound.LAUNCH
    share = reached_share(chip, "memory", kernel.num_bytes)
    memory_s = kernel.num_bytes / (chip.hbm_bytes_per_s * share)
    return max(
        UnitTime(units_s, bound),
        UnitTime(memory_s, Bound.MEMORY),
        UnitTime(chip.launch_s, Bound.LAUNCH),
        key=lambda time: time.seconds,
    )


def _stretch_time(stretch: Stretch, chip: Chip) -> UnitTime:
    """Of the unit that has most to do."""
    rest = stretch.rest
    slots = max(rest.flops, ALUS * rest.transcendentals, ALUS * stretch.stored)
    matrix_s = sum(_product_s(op, runs, chip) for op, runs in stretch.products)
    vector_s = slots / chip.vector_flops_per_s
    if matrix_s >= vector_s:
        return UnitTime(matrix_s, Bound.MATRIX)
    return UnitTime(vector_s, Bound.VECTOR)


def _product_s(op: Op, runs: int, chip: Chip) -> float:
    """Seconds of the matrix unit; 32-bit blocks go through it as 16 bits, once.

    That is the default of `jax.lax.dot`; for a higher precision, at the pace of 32.
    """
    flops = runs * padded_flops(op, chip)
    dtype = op.operands[0].dtype
    if dtype == "float32" and "HIGH" not in str(op.params.get("precision")):
        dtype = "bfloat16"
    share = reached_share(chip, "product", flops)
    return flops / (chip.peak_flops_per_s(dtype) * share)

"""Kernel emission: the kernels of a program's fusions, and what each reads and writes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from meshwright.predict.compilers.hlo.dataflow import stored_outputs
from meshwright.predict.compilers.hlo.fusion import Fusion, FusionKind
from meshwright.predict.compilers.hlo.kernels import (
    Access,
    Kernel,
    KernelSequence,
    accessed_values,
    collective_bytes,
    matrix_unit_operands,
)
from meshwright.predict.compilers.hlo.layouts import Layouts
from meshwright.predict.compilers.hlo.product_streams import streamed_operands
from meshwright.predict.compilers.xla.memory_space_assignment import on_chip_candidates
from meshwright.predict.compilers.xla.multi_output_fusion import merge_fusions
from meshwright.predict.roofline.kernel_time import timing_key
from meshwright.program.ir import Program, Value
from meshwright.program.rules.pallas_kernel import kernel_of


def kernels_of(
    program: Program, layouts: Layouts, fusions: Sequence[Fusion]
) -> KernelSequence:
    """The kernels of a program, those of its bodies included."""
    merged = merge_fusions(fusions)
    on_chip = on_chip_candidates(merged, stored_outputs(program), layouts)
    may_stay = {value for value, *_ in on_chip.ranges}
    kernels = tuple([_kernel(fusion, layouts, may_stay) for fusion in merged])
    axes = dict.fromkeys(axis for each in kernels for axis in each.axes)
    return KernelSequence(program.inputs, kernels, on_chip, tuple(axes))


def _kernel(fusion: Fusion, layouts: Layouts, may_stay: Collection[Value]) -> Kernel:
    if fusion.kind is FusionKind.COLLECTIVE:
        return Kernel(fusion, (), collective_bytes(fusion, layouts), 0, None)
    if fusion.kind is FusionKind.REGION:
        bodies = tuple(
            kernels_of(body, layouts, inner)
            for body, inner in zip(fusion.root.bodies, fusion.bodies, strict=True)
        )
        return Kernel(fusion, (), 0, 0, None, bodies=bodies)
    work = timing_key(fusion.root), fusion.work.flops, fusion.work.transcendentals
    pallas = kernel_of(fusion.root)
    if pallas is not None:
        return Kernel(fusion, (), pallas.num_bytes, 0, work)
    direct, shares = matrix_unit_operands(fusion), fusion.shares
    accesses: list[Access] = []
    num_bytes = elements = 0
    for value in accessed_values(fusion):
        accessed = math.prod(value.shape)
        if value in shares:
            accessed = int(accessed * shares[value])
        through_registers = 0 if value in direct else accessed
        moved = accessed * layouts.itemsize(value)
        if value in may_stay:
            accesses.append(Access(value, accessed, through_registers, moved))
        num_bytes += moved
        elements += through_registers
    streams = streamed_operands(fusion, layouts)
    return Kernel(fusion, tuple(accesses), num_bytes, elements, work, streams)

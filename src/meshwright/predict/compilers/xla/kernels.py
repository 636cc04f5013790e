"""Kernels: what a device program does in time, before a chip says how fast.

Fusions that multi-output fusion merges are one kernel. What a kernel reads and writes is
found once; another machine only has to say what stays in its scratch memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from meshwright.predict.compilers.xla.dataflow import stored_outputs
from meshwright.predict.compilers.xla.fusion import Fusion, FusionKind
from meshwright.predict.compilers.xla.layouts import Layouts
from meshwright.predict.compilers.xla.memory_space_assignment import (
    NO_CANDIDATES,
    OnChipCandidates,
    on_chip_candidates,
)
from meshwright.predict.compilers.xla.multi_output_fusion import merge_fusions
from meshwright.predict.compilers.xla.product_streams import (
    StreamedOperands,
    streamed_operands,
)
from meshwright.predict.roofline.kernel_time import KernelTraffic, timing_key
from meshwright.predict.roofline.padding import uses_matrix_unit
from meshwright.program.ir import Atom, Program, Value
from meshwright.program.ops import Trait, has_trait
from meshwright.program.records.fast_frozen import fast_frozen
from meshwright.program.rules.pallas_kernel import kernel_of


class Access(NamedTuple):
    """A value that a kernel reads or writes and that scratch memory may hold.

    elements: that are read or written; through_registers: those of them that pass
        through registers. num_bytes: traffic to main memory, unless the value is in
        scratch memory.
    """

    value: Value
    elements: int
    through_registers: int
    num_bytes: int


@fast_frozen
@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A fusion, or several merged by multi-output fusion, that is launched once.

    accesses: of values that may stay in scratch memory.
    num_bytes, elements: of all that it reads and writes, if nothing is in scratch
        memory; of a collective, the bytes of its whole value.
    work: equal for kernels that take as long for the same bytes and elements.
    streams: of a product, the operands that may be read more than once.
    bodies: of control flow, the kernels of each body.
    """

    fusion: Fusion
    accesses: tuple[Access, ...]
    num_bytes: int
    elements: int
    work: Hashable
    streams: StreamedOperands | None = None
    bodies: tuple[KernelSequence, ...] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """Mesh axes that the kernel, or a collective in its bodies, communicates over."""
        if self.fusion.kind is FusionKind.COLLECTIVE:
            params: Mapping[str, Any] = self.fusion.root.params
            return tuple(params["axes"])
        return tuple(axis for body in self.bodies for axis in body.axes)

    def traffic(self, on_chip: Collection[Value]) -> KernelTraffic:
        """What passes through main memory and through registers.

        on_chip: values in scratch memory; they pass through registers once.
        """
        num_bytes, elements = self.num_bytes, self.elements
        for value, accessed, through_registers, moved in self.accesses:
            if value in on_chip:
                num_bytes -= moved
                elements -= through_registers and accessed - accessed // 2
        streams = None if self.streams is None else self.streams.outside(on_chip)
        return KernelTraffic(num_bytes, elements, streams)


@dataclass(frozen=True, slots=True, eq=False)
class KernelSequence:
    """The kernels of a program or body, in an order that is valid.

    inputs: values that are available from the start.
    on_chip: values that may stay in scratch memory, numbered by kernel.
    axes: mesh axes of all collectives, those of bodies included.
    """

    inputs: tuple[Value, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    on_chip: OnChipCandidates = NO_CANDIDATES
    axes: tuple[str, ...] = ()


NO_KERNELS = KernelSequence()


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


def multi_output_writes(sequence: KernelSequence) -> list[tuple[Value, ...]]:
    """The results of each kernel that has several, those of bodies included."""
    found: list[tuple[Value, ...]] = []
    for each in sequence.kernels:
        if len(each.fusion.writes) > 1:
            found.append(each.fusion.writes)
        for body in each.bodies:
            found += multi_output_writes(body)
    return found


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


def accessed_values(fusion: Fusion) -> list[Value]:
    """Values that a fusion reads and writes; a slice stands for an array sliced."""
    root = fusion.root
    accessed = [*fusion.reads, *fusion.writes]
    if has_trait(root.kind, Trait.READS_AT_INDEX) and root.operands[0] in accessed:
        # As much is read of the table as is taken from it.
        accessed.remove(root.operands[0])
        accessed += root.results
    elif root.kind == "dynamic_update_slice" and fusion.in_place is not None:
        accessed = [v for v in accessed if v not in (fusion.in_place, *root.results)]
        accessed += [v for v in root.operands[1:2] if isinstance(v, Value)] * 2
    return accessed


def matrix_unit_operands(fusion: Fusion) -> tuple[Atom, ...]:
    """Operands that go to the matrix unit without passing through registers."""
    is_product = fusion.kind is FusionKind.PRODUCT and uses_matrix_unit(fusion.root)
    return fusion.root.operands[:2] if is_product else ()


def collective_bytes(fusion: Fusion, layouts: Layouts) -> int:
    """Bytes of a collective's whole value on one device: operands or results."""
    sides = (fusion.reads, fusion.writes)
    return max((sum(map(layouts.num_bytes, side)) for side in sides if side), default=0)

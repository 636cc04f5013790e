"""What a device program does in time, before any chip says how fast.

Units that walk together are one pass, and of each pass it is known once what it reads and
writes, so that another machine only has to say what stays in its scratch memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from meshwright.predict.compilers.tpu.memory_space_assignment import Lives, lives_of
from meshwright.predict.compilers.tpu.product_streams import Sides, sides_of
from meshwright.predict.compilers.xla.dataflow import stored_outputs
from meshwright.predict.compilers.xla.fusion import Fusion, FusionKind
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.predict.compilers.xla.multi_output_fusion import merge_outputs
from meshwright.predict.roofline.kernel_time import KernelTraffic, timing_key
from meshwright.predict.roofline.padding import uses_matrix_unit
from meshwright.program.ir import Atom, Program, Value
from meshwright.program.ops import Trait, has_trait
from meshwright.program.records.fast_frozen import fast_frozen
from meshwright.program.rules.pallas_kernel import kernel_of


class Touch(NamedTuple):
    """A value that a pass reads or writes, and scratch memory may hold.

    passing: elements that do. elements: those of them that pass through registers.
    num_bytes: what moves, unless scratch memory holds the value.
    """

    value: Value
    passing: int
    elements: int
    num_bytes: int


@fast_frozen
@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """Units that run as one.

    touches: of what it reads and writes, what may stay in scratch memory.
    num_bytes, elements: of all that it reads and writes, if nothing stays there; of a
        collective, the bytes of its whole value.
    sides: of a product, what may stream through it.
    work: equal for passes that take as long for the same bytes and elements.
    bodies: of a region, their passes.
    """

    fusion: Fusion
    touches: tuple[Touch, ...]
    num_bytes: int
    elements: int
    work: Hashable
    sides: Sides | None = None
    bodies: tuple[KernelSequence, ...] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """Those that it, or its bodies' collectives, go across."""
        if self.fusion.kind is FusionKind.COLLECTIVE:
            params: Mapping[str, Any] = self.fusion.root.params
            return tuple(params["axes"])
        return tuple(axis for body in self.bodies for axis in body.axes)

    def traffic(self, on_chip: Collection[Value]) -> KernelTraffic:
        """What passes through main memory and through registers.

        on_chip: values that scratch memory holds; they pass through registers once.
        """
        num_bytes, elements = self.num_bytes, self.elements
        for value, passing, through, moved in self.touches:
            if value in on_chip:
                num_bytes -= moved
                elements -= through and passing - passing // 2
        streams = None if self.sides is None else self.sides.streams(on_chip)
        return KernelTraffic(num_bytes, elements, streams)


@dataclass(frozen=True, slots=True, eq=False)
class KernelSequence:
    """Those of a program or body, in an order that works.

    inputs: what is there from the start. layout: of values, none in scratch memory.
    lives: how long values do that may stay there.
    axes: all that collectives go across, those of bodies included.
    """

    inputs: tuple[Value, ...]
    layout: Layout
    kernels: tuple[Kernel, ...]
    lives: Lives
    axes: tuple[str, ...]


def kernels_of(
    program: Program, layout: Layout, units: Sequence[Fusion]
) -> KernelSequence:
    """The passes of a program, bodies of loops included."""
    merged = merge_outputs(units)
    lives = lives_of(merged, stored_outputs(program), layout)
    may_stay = {value for value, *_ in lives.lives}
    passes = tuple([_pass(unit, layout, may_stay) for unit in merged])
    axes = dict.fromkeys(axis for each in passes for axis in each.axes)
    return KernelSequence(program.inputs, layout, passes, lives, tuple(axes))


def written_together(passes: KernelSequence) -> list[tuple[Value, ...]]:
    """What each pass with several results writes, those of bodies included."""
    found: list[tuple[Value, ...]] = []
    for each in passes.kernels:
        if len(each.fusion.writes) > 1:
            found.append(each.fusion.writes)
        for body in each.bodies:
            found += written_together(body)
    return found


def _pass(unit: Fusion, layout: Layout, may_stay: Collection[Value]) -> Kernel:
    if unit.kind is FusionKind.COLLECTIVE:
        return Kernel(unit, (), whole_bytes(unit, layout), 0, None)
    if unit.kind is FusionKind.REGION:
        bodies = tuple(
            kernels_of(body, layout, units)
            for body, units in zip(unit.root.bodies, unit.bodies, strict=True)
        )
        return Kernel(unit, (), 0, 0, None, bodies=bodies)
    work = timing_key(unit.root), unit.work.flops, unit.work.transcendentals
    kernel = kernel_of(unit.root)
    if kernel is not None:
        return Kernel(unit, (), kernel.num_bytes, 0, work)
    fed, shares = fed_to_matrix_unit(unit), unit.shares
    touches: list[Touch] = []
    num_bytes = elements = 0
    for value in touched_by(unit):
        passing = math.prod(value.shape)
        if value in shares:
            passing = int(passing * shares[value])
        through = 0 if value in fed else passing
        moved = passing * layout.itemsize(value)
        if value in may_stay:
            touches.append(Touch(value, passing, through, moved))
        num_bytes += moved
        elements += through
    sides = sides_of(unit, layout)
    return Kernel(unit, tuple(touches), num_bytes, elements, work, sides)


def touched_by(unit: Fusion) -> list[Value]:
    """What a unit reads and writes; of a picked part, a value of its size."""
    root = unit.root
    touched = [*unit.reads, *unit.writes]
    if has_trait(root.kind, Trait.READS_AT_INDEX) and root.operands[0] in touched:
        # As much is read of the table as is taken from it.
        touched.remove(root.operands[0])
        touched += root.results
    elif root.kind == "dynamic_update_slice" and unit.in_place is not None:
        touched = [v for v in touched if v not in (unit.in_place, *root.results)]
        touched += [v for v in root.operands[1:2] if isinstance(v, Value)] * 2
    return touched


def fed_to_matrix_unit(unit: Fusion) -> tuple[Atom, ...]:
    """What enters a product as it is, and so never passes through registers."""
    is_product = unit.kind is FusionKind.PRODUCT and uses_matrix_unit(unit.root)
    return unit.root.operands[:2] if is_product else ()


def whole_bytes(unit: Fusion, layout: Layout) -> int:
    """Bytes of a collective's whole value on one device: the larger of its two sides."""
    sides = (unit.reads, unit.writes)
    return max((sum(map(layout.num_bytes, side)) for side in sides if side), default=0)

"""Kernels of a device program, with their work and memory traffic but without seconds.

Fusions that multi-output fusion merges are one kernel. The traffic of a kernel is
computed once; for another machine only the set of values in scratch memory changes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.predict.roofline.kernel_time import KernelTraffic
from meshwright.predict.roofline.matrix_unit import uses_matrix_unit
from meshwright.predict.roofline.rereads import SUM_BYTES, Streams
from meshwright.program.ir import Atom, Value
from meshwright.program.ops import Trait, has_trait
from meshwright.program.records import fast_frozen

_MAX_RATIO = 2.0
"""Largest ratio of the sizes of an array and a product's result with which the array is
read for each tile of the result.

An array besides the operands that is smaller or larger by more than this factor, such
as a vector or a sum, is not read for each tile.
"""

_Sizes = tuple[tuple[Value, float], ...]


class OnChipRange(NamedTuple):
    """A value that may stay in scratch memory, with its live range and size.

    start, end: indices of the first and the last fusion of the live range.
    size: bytes.
    """

    value: Value
    start: int
    end: int
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class OnChipCandidates:
    """Values of one program or body that may stay in scratch memory.

    ranges: sorted from the shortest live range, which takes scratch memory for the
        shortest time.
    num_fusions: number of fusions of the program or body.
    """

    ranges: tuple[OnChipRange, ...]
    num_fusions: int

    def fitting(
        self, scratch_bytes: float, excluded: Collection[Value] = ()
    ) -> frozenset[Value]:
        """The candidates that are placed in a scratch memory of the given size.

        excluded: candidates that are not placed.
        Values are taken greedily, from the shortest live range. A value is placed if it
        fits next to the values placed before it throughout its live range.
        """
        used = np.zeros(self.num_fusions, np.int64)
        kept: list[Value] = []
        for value, start, end, size in self.ranges:
            if size > scratch_bytes or value in excluded:
                continue
            meanwhile = used[start : end + 1]
            if meanwhile.max() + size <= scratch_bytes:
                kept.append(value)
                meanwhile += size
        return frozenset(kept)


Access = tuple[Value, int, int, int]
"""One read or write, by a kernel, of a value that may be in scratch memory.

The entries are the value; its elements; the number of its elements that pass through
vector registers; and the bytes of traffic if the value is in main memory.
"""


class StreamedOperands(NamedTuple):
    """Arrays that a matrix product may read repeatedly while it runs, with bytes.

    left, right: arrays from which the left or the right operand is computed.
    others: other arrays, about as large as the result, that are read or written.
    elements: number of elements of the result.
    widest: bytes per element of the widest array that is written.
    """

    left: _Sizes
    right: _Sizes
    others: _Sizes
    elements: int
    widest: int

    def outside(self, on_chip: Collection[Value]) -> Streams:
        """Bytes of the arrays that are in main memory and may be read repeatedly.

        on_chip: values in scratch memory, which cost no traffic.
        """
        left, right, others = (
            sum([size for value, size in side if value not in on_chip])
            for side in self[:3]
        )
        others /= self.elements
        return Streams(int(left), int(right), others, self.widest >= SUM_BYTES)


@fast_frozen
@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A fusion, or several merged by multi-output fusion, that is launched once.

    accesses: reads and writes of values that may stay in scratch memory.
    num_bytes: bytes read and written if nothing is in scratch memory; for a collective,
        the bytes of its whole value.
    elements: elements that pass through vector registers if nothing is in scratch
        memory.
    work: a key; kernels with equal keys, bytes and elements take equally long.
    streams: for a product, the operands that may be read more than once.
    bodies: for control flow, the kernels of each body.
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
        """Mesh axes over which the kernel, or a collective inside it, communicates."""
        if self.fusion.kind is FusionKind.COLLECTIVE:
            params: Mapping[str, Any] = self.fusion.root.params
            return tuple(params["axes"])
        return tuple(axis for body in self.bodies for axis in body.axes)

    def traffic(self, on_chip: Collection[Value]) -> KernelTraffic:
        """Bytes moved to and from main memory, and elements in vector registers.

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
    """The kernels of a program or body, in an order that respects their dependencies.

    inputs: values available from the start.
    on_chip: values that may stay in scratch memory.
    axes: mesh axes of all collectives, including collectives in nested bodies.
    """

    inputs: tuple[Value, ...]
    kernels: tuple[Kernel, ...]
    on_chip: OnChipCandidates
    axes: tuple[str, ...]


def multi_output_writes(sequence: KernelSequence) -> list[tuple[Value, ...]]:
    """The results of each kernel that writes several values, also in loop bodies."""
    found: list[tuple[Value, ...]] = []
    for each in sequence.kernels:
        if len(each.fusion.writes) > 1:
            found.append(each.fusion.writes)
        for body in each.bodies:
            found += multi_output_writes(body)
    return found


def accessed_values(fusion: Fusion) -> list[Value]:
    """Values whose bytes a fusion moves: all that it reads and writes, with exceptions.

    An op that reads a table at an index moves only what it takes from the table. A
    dynamic-update-slice in place moves only the update, once to read and once to write;
    fused into a matrix product, once to write.
    """
    root = fusion.root
    accessed = [*fusion.reads, *fusion.writes]
    if fusion.update is not None:
        whole = (fusion.in_place, *fusion.writes)
        return [*(v for v in accessed if v not in whole), fusion.update]
    if has_trait(root.kind, Trait.READS_AT_INDEX) and root.operands[0] in accessed:
        # As much is read of the table as is taken from it.
        accessed.remove(root.operands[0])
        accessed += root.results
    elif root.kind == "dynamic_update_slice" and fusion.in_place is not None:
        accessed = [v for v in accessed if v not in (fusion.in_place, *root.results)]
        accessed += [v for v in root.operands[1:2] if isinstance(v, Value)] * 2
    return accessed


def matrix_unit_operands(fusion: Fusion) -> tuple[Atom, ...]:
    """Operands that go to the matrix unit without passing vector registers."""
    is_product = fusion.kind is FusionKind.PRODUCT and uses_matrix_unit(fusion.root)
    return fusion.root.operands[:2] if is_product else ()


def collective_bytes(fusion: Fusion, layouts: Layouts) -> int:
    """Bytes of a collective's operands or results on one device, the larger sum."""
    sides = (fusion.reads, fusion.writes)
    return max((sum(map(layouts.num_bytes, side)) for side in sides if side), default=0)


def streamed_operands(fusion: Fusion, layouts: Layouts) -> StreamedOperands | None:
    """Arrays in memory that a matrix product's fusion reads and writes, with their bytes.

    An array larger than the operand computed from it counts with the operand's size,
    since the operand is then a slice of the array. `None` if the fusion contains no matrix
    product.
    """
    if not fusion.sides:
        return None
    atoms = (*fusion.root.operands[:2], *fusion.root.results)
    sizes = [math.prod(v.shape) for v in atoms]
    if 0 in sizes:
        return None

    def moved(values: Iterable[Value], most: int) -> _Sizes:
        counts = [(v, prod(v.shape) * shares.get(v, 1.0)) for v in values]
        return tuple([(v, min(n, most) * layouts.itemsize(v)) for v, n in counts])

    prod, shares, (left, right) = math.prod, fusion.shares, fusion.sides
    result = sizes[2]
    low, high = result / _MAX_RATIO, result * _MAX_RATIO
    updated = () if fusion.update is None else (fusion.in_place, *fusion.writes)
    apart = {*left, *right, *updated}
    others = [
        v
        for v in (*fusion.reads, *fusion.writes)
        if low <= prod(v.shape) <= high and v not in apart
    ]
    return StreamedOperands(
        moved(left, sizes[0]),
        moved(right, sizes[1]),
        moved(others, math.ceil(high)),
        result,
        max(map(layouts.itemsize, fusion.writes), default=0),
    )

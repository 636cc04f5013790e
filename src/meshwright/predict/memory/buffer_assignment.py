"""Buffer assignment: the buffers of a program's values on one device, as a heap.

XLA: `BufferAssignment`. How a compiler assigns buffers is its `BufferPolicy`. A result may
alias an operand that is read last there (`Heap._takes_buffer`); the operands that allow it
are in `Fusion.overwrites`, which `xla/instruction_fusion.py` fills by the compiler's
policy (`aliased_operands` in `tpu/tpu_passes.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType

from meshwright.predict.compilers.model.compilation import Compilation
from meshwright.predict.compilers.model.dataflow import stored_outputs
from meshwright.predict.compilers.model.fusion import (
    FUSES_OPERANDS,
    Fusion,
    FusionKind,
    launch_groups,
)
from meshwright.predict.compilers.model.kernels import multi_output_writes
from meshwright.predict.compilers.model.policies import BufferPolicy, HeapOrder
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.predict.memory.memory_curve import MemoryCurve
from meshwright.predict.memory.packing import (
    packed_bytes,
    packed_in_time,
    packed_with_results,
)
from meshwright.program.analysis.live_ranges import (
    BufferInterval,
    live_bytes,
    live_ranges,
)
from meshwright.program.ir import Atom, Value

type OwnedInterval = tuple[BufferInterval, tuple[Value, ...]]
"""A buffer's size and live range, and the values that are in it at its end."""


def memory_of(
    compilation: Compilation,
    aliases: Mapping[int, int] = MappingProxyType({}),
    layouts: Layouts | None = None,
    unaliased: Collection[int] = (),
) -> MemoryCurve:
    """The memory of one run of a compiled device program.

    aliases: output position -> position of the donated input whose buffer it takes.
    layouts: used instead of the compilation's, such as those with values in scratch
    memory.
    unaliased: positions of outputs that could take an input's buffer, but do not, such as
        the new state of a step that does not donate its state.
    """
    program, policy = compilation.program, compilation.compiler.buffers
    layouts = layouts or compilation.layouts
    heap, memory = heap_of(compilation, aliases, layouts, unaliased)
    memory = heap.with_fragmentation(memory)
    fixed = {*program.inputs, *program.constants}
    together = multi_output_writes(compilation.kernels)
    tables = (len(program.inputs) + len(together)) * policy.alignment_bytes
    copies = [v for o, v in enumerate(stored_outputs(program)) if o not in aliases]
    copied = sum(layouts.size(v) for v in copies if isinstance(v, Value) and v in fixed)
    return replace(memory, extra_bytes=tables + copied)


def heap_of(
    compilation: Compilation,
    aliases: Mapping[int, int],
    layouts: Layouts,
    unaliased: Collection[int] = (),
) -> tuple[Heap, MemoryCurve]:
    """The heap of a device program, and the memory of a run without fragmentation.

    aliases, layouts, unaliased: as in `memory_of`.
    """
    program, policy = compilation.program, compilation.compiler.buffers
    fixed = dict.fromkeys((*program.inputs, *program.constants))
    outputs = policy.outputs(program)
    donated = {
        program.inputs[i]: outputs[o]
        for o, i in aliases.items()
        if outputs[o] is not program.inputs[i]
    }
    shared = frozenset(chain(*multi_output_writes(compilation.kernels)))
    # The TPU compiler lets no other buffer take the place of such a result.
    own = {outputs[i] for i in unaliased} if policy.heap is HeapOrder.BY_TIME else ()
    results = (o for o in outputs if o in own and isinstance(o, Value))
    reserved = dict.fromkeys(o for o in results if o not in fixed)
    heap = Heap(layouts, compilation.fusions, outputs, policy, shared)
    memory = heap.assign({**fixed, **reserved}, (), donated)
    return heap, replace(memory, reserved=frozenset(reserved))


@dataclass(eq=False)
class Heap:
    """The buffers of one program or body, as intervals over its fusions.

    ends: outputs of the program or body.
    together: values that a kernel writes together with others; no other value may reuse
    their buffers in place.
    bodies: for control-flow fusions, the heaps of their bodies. body_totals: numbers of
    the intervals that represent all buffers of the largest body.
    """

    layouts: Layouts
    fusions: Sequence[Fusion]
    ends: Sequence[Atom]
    policy: BufferPolicy
    together: frozenset[Value]

    def __post_init__(self) -> None:
        fusions = self.fusions
        self.outputs = {v for v in self.ends if isinstance(v, Value)}
        self.reduced: set[Value] = set()  # elementwise results that a reduction reads
        written: set[Value] = set()
        self.launches = launch_groups(fusions)
        for fusion in fusions:
            if fusion.kind is FusionKind.REDUCTION:
                self.reduced.update(written.intersection(fusion.reads))
            elif fusion.kind in FUSES_OPERANDS:
                written.update(fusion.writes)
        ranges = live_ranges((fusion.reads, fusion.writes) for fusion in fusions)
        self.first_use = ranges.first_uses
        self.last_use = {v: self.launches[i][1] for v, i in ranges.last_uses.items()}
        self.intervals: list[BufferInterval] = []
        self.owners: list[tuple[Value, ...]] = []
        self.interval_of: dict[Value, int] = {}
        self.overwritten: set[Value] = set()
        self.bodies: dict[int, list[Heap]] = {}
        self.body_totals: set[int] = set()

    def assign(
        self,
        fixed: Collection[Value],
        inputs: Iterable[Value],
        aliases: Mapping[Value, Atom],
    ) -> MemoryCurve:
        """The memory of a run, without fragmentation.

        fixed: values that are live from beginning to end.
        inputs: values that are live from the beginning.
        aliases: for values that are fixed, or counted outside, the output that takes their
            buffer; the value is copied first if this cannot happen in place.
        """
        for value, output in aliases.items():
            if value in self.first_use and not self._is_in_place(value, output):
                self._add(value, self.first_use[value], self.last_use[value])
        for value in inputs:
            self._add(value, 0, self._end(value, 0))
        assigned = {*fixed, *aliases.values()}
        for index, fusion in enumerate(self.fusions):
            for value in fusion.writes:
                if value in assigned or self._takes_buffer(fusion, index, value):
                    continue
                is_first = self.policy.is_preallocated(fusion.root, value)
                start = 0 if is_first else self.launches[index][0]
                self._add(value, start, self._end(value, index))
            if fusion.kind is FusionKind.REGION:
                self._add_bodies(fusion, index)
        return self._memory(fixed)

    def with_fragmentation(self, memory: MemoryCurve) -> MemoryCurve:
        """The memory of a run with fragmentation: its buffers are packed into a heap."""
        gaps = self._packed_bytes() - (max(memory.curve) - memory.curve[0])
        return replace(memory, fragmentation_bytes=max(0, gaps))

    def _add(self, value: Value, start: int, end: int) -> None:
        if end >= start:
            self.interval_of[value] = len(self.intervals)
            interval = BufferInterval(self.layouts.size(value), start, end)
            self.intervals.append(interval)
            self.owners.append((value,))

    def _takes_buffer(self, fusion: Fusion, index: int, value: Value) -> bool:
        """Give a result the buffer of an operand that dies here; False if none fits."""
        size = self.layouts.size
        operands = [v for v in fusion.overwrites if self._may_alias(v, value)]
        if value in fusion.replaces:
            carried = fusion.replaces[value]
            operands = [carried] if size(carried) == size(value) else []
        for operand in operands:
            number = self.interval_of.get(operand)
            if number is None or self.intervals[number].end != index:
                continue
            num_bytes, start, _ = self.intervals[number]
            end = self._end(value, index)
            self.intervals[number] = BufferInterval(num_bytes, start, end)
            self.owners[number] = (value,)
            self.interval_of[value] = number
            del self.interval_of[operand]
            self.overwritten.add(operand)
            return True
        return False

    def _may_alias(self, operand: Value, result: Value) -> bool:
        """Whether an elementwise result may take an operand's buffer.

        Not if the operand is also reduced: the reduction is computed in the kernel that
        writes the operand, which then writes several values, even if a fusion lies
        between the two here.
        """
        size = self.layouts.size
        is_busy = operand in self.together or operand in self.reduced
        is_alike = size(operand) == size(result) and not is_busy
        return is_alike or self.policy.aliases_any_size

    def _end(self, value: Value, made: int) -> int:
        """The last fusion during which a value is live."""
        if value in self.outputs:
            return len(self.fusions)
        last = self.last_use.get(value, made)
        reader = self.fusions[last]
        is_updated = reader.kind is FusionKind.OTHER and reader.in_place is value
        if is_updated and last > made:
            self.overwritten.add(value)
            return last - 1
        return last

    def _is_in_place(self, value: Value, output: Atom) -> bool:
        """Whether the last fusion that reads `value` writes `output` in its place.

        That is an elementwise fusion or an update, or a loop that carries both.
        """
        fusion = self.fusions[self.last_use[value]]
        if isinstance(output, Value) and fusion.replaces.get(output) is value:
            return self.layouts.size(output) == self.layouts.size(value)
        in_step = fusion.kind is FusionKind.LOOP or fusion.in_place is value
        return in_step and output in fusion.writes

    def _add_bodies(self, fusion: Fusion, index: int) -> None:
        """Add an interval for the memory that a region's largest body needs of its own."""
        op, policy = fusion.root, self.policy
        most: tuple[int, tuple[Value, ...]] = 0, ()
        heaps = self.bodies[index] = []
        for number, body in enumerate(fusion.bodies):
            fusions = policy.body_order(op, number, body)
            own = policy.body_buffers(op, number, fusions, self.layouts)
            heap = Heap(self.layouts, fusions, own.outputs, policy, self.together)
            memory = heap.assign((), own.inputs, own.aliases)
            if policy.heap is not HeapOrder.BY_TIME:
                memory = heap.with_fragmentation(memory)
            heaps.append(heap)
            num_bytes = memory.peak_bytes - sum(map(self.layouts.size, own.outside))
            if num_bytes > most[0]:
                outside = own.outside
                most = num_bytes, tuple(v for v in memory.alive if v not in outside)
        if most[0] > 0:
            self.body_totals.add(len(self.intervals))
            self.intervals.append(BufferInterval(most[0], index, index))
            self.owners.append(most[1])

    def _memory(self, fixed: Collection[Value]) -> MemoryCurve:
        fixed_bytes = sum(map(self.layouts.size, fixed))
        live = live_bytes(self.intervals, len(self.fusions))
        curve = [fixed_bytes, *(fixed_bytes + num_bytes for num_bytes in live)]
        peak = max(range(len(curve)), key=curve.__getitem__) - 1
        alive = [
            value
            for interval, owners in zip(self.intervals, self.owners, strict=True)
            if interval.start <= peak <= interval.end
            for value in owners
        ]
        ordered = sorted((*fixed, *alive), key=self.layouts.size, reverse=True)
        overwritten = frozenset(self.overwritten)
        return MemoryCurve(tuple(curve), peak, tuple(ordered), overwritten)

    def in_time(self, clock: int = 0) -> tuple[list[OwnedInterval], int]:
        """Intervals with their values, also of bodies, and the step after the last one.

        Steps are counted from `clock` on; steps of bodies lie within their loop's.
        """
        own = list(zip(self.intervals, self.owners, strict=True))
        if not self.bodies and not clock:
            return own, len(self.fusions) + 1
        found: list[OwnedInterval] = []
        first: list[int] = []
        last: list[int] = []
        for index in range(len(self.fusions) + 1):
            first.append(clock)
            for body in self.bodies.get(index, ()):
                inside, clock = body.in_time(clock)
                found += inside
            last.append(clock)
            clock += 1
        found += [
            (BufferInterval(each.size, first[each.start], last[each.end]), values)
            for number, (each, values) in enumerate(own)
            if number not in self.body_totals
        ]
        return found, clock

    def _packed_bytes(self) -> int:
        if self.policy.heap is HeapOrder.BY_TIME:
            step = self.policy.alignment_bytes or 1
            owned, _ = self.in_time()
            return packed_in_time(
                [BufferInterval(-(-s // step) * step, a, b) for (s, a, b), _ in owned]
            )
        if self.policy.heap is HeapOrder.BEST_FIT:
            return packed_bytes(self.intervals)
        own = {self.interval_of[v] for v in self.outputs if v in self.interval_of}
        rest = [b for i, b in enumerate(self.intervals) if i not in own]
        return packed_with_results(rest, [self.intervals[i] for i in sorted(own)])

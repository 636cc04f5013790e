"""The lives of a program's values on one device, as the blocks of a heap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from meshwright.predict.compilers.rules import TPU, Rules
from meshwright.predict.compilers.xla.control_flow import handed_on, handed_out
from meshwright.predict.compilers.xla.dataflow import stored_outputs
from meshwright.predict.compilers.xla.fusion import (
    TAKES_IN,
    Fusion,
    FusionKind,
    runs_of,
)
from meshwright.predict.compilers.xla.instruction_fusion import fuse
from meshwright.predict.compilers.xla.kernels import (
    KernelSequence,
    kernels_of,
    written_together,
)
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.predict.compilers.xla.loop_schedule import in_turn
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
from meshwright.program.ir import Atom, Program, Value

_NONE: Mapping[int, int] = MappingProxyType({})


def memory_of(
    program: Program,
    aliases: Mapping[int, int] = _NONE,
    layout: Layout | None = None,
    units: Sequence[Fusion] | None = None,
    rules: Rules = TPU,
    passes: KernelSequence | None = None,
) -> MemoryCurve:
    """The memory of one run of a device program.

    aliases: output position -> position of the input whose memory it takes over, since
        the caller gave it up. Inputs stay to the end, for their memory is the caller's.
    passes: what its units are when those that walk together are merged.
    """
    layout = layout or Layout()
    units = fuse(program, layout, rules) if units is None else units
    fixed = (*program.inputs, *program.constants)
    outputs = program.outputs if rules.calls_library else stored_outputs(program)
    taken = {
        program.inputs[i]: outputs[o]
        for o, i in aliases.items()
        if outputs[o] is not program.inputs[i]
    }
    together: list[tuple[Value, ...]] = []
    if rules.overwrites or rules.step_bytes:
        together = written_together(passes or kernels_of(program, layout, units))
    heap = Heap(layout, units, outputs, rules, frozenset(chain(*together)))
    memory = heap.with_gaps(heap.run(fixed, (), taken))
    tables = (len(program.inputs) + len(together)) * rules.step_bytes
    kept = {*fixed}
    copies = [v for o, v in enumerate(stored_outputs(program)) if o not in aliases]
    copied = sum(layout.size(v) for v in copies if isinstance(v, Value) and v in kept)
    return replace(memory, extra_bytes=tables + copied)


class Heap:
    """The lives of the values of one program or body, as blocks over its units.

    together: values that come with others from one pass, whose places nobody takes.
    bodies: by unit that is a region, the heaps of its bodies. whole_bodies: numbers of
        the blocks that stand for all that is in the largest of them.
    """

    def __init__(
        self,
        layout: Layout,
        units: Sequence[Fusion],
        outputs: Sequence[Atom],
        rules: Rules,
        together: frozenset[Value],
    ) -> None:
        self.layout = layout
        self.rules = rules
        self.together = together
        self.units = units
        self.outputs = {v for v in outputs if isinstance(v, Value)}
        self.summed: set[Value] = set()
        walked: set[Value] = set()
        self.runs = runs_of(units)
        for unit in units:
            if unit.kind is FusionKind.REDUCTION:
                self.summed.update(walked.intersection(unit.reads))
            elif unit.kind in TAKES_IN:
                walked.update(unit.writes)
        ranges = live_ranges((unit.reads, unit.writes) for unit in units)
        self.first = ranges.first_uses
        self.last = {v: self.runs[i][1] for v, i in ranges.last_uses.items()}
        self.blocks: list[BufferInterval] = []
        self.owners: list[tuple[Value, ...]] = []
        self.block_of: dict[Value, int] = {}
        self.overwritten: set[Value] = set()
        self.bodies: dict[int, list[Heap]] = {}
        self.whole_bodies: set[int] = set()

    def run(
        self,
        fixed: Iterable[Value],
        given: Iterable[Value],
        taken: Mapping[Value, Atom],
    ) -> MemoryCurve:
        """The memory of a run, without gaps.

        fixed: values that are there from beginning to end. given: values that are there
        when it begins. taken: of `fixed`, or of what is counted outside, those whose
        memory an output takes over; where it cannot be written in place as they are
        read for the last time, they are copied before.
        """
        fixed = dict.fromkeys(fixed)
        for value, output in taken.items():
            if value in self.first and not self._is_in_place(value, output):
                self._add(value, self.first[value], self.last[value])
        for value in given:
            self._add(value, 0, self._end(value, 0))
        ready = {*fixed, *taken.values()}
        for index, unit in enumerate(self.units):
            for value in unit.writes:
                if value not in ready and not self._overwrites(unit, index, value):
                    self._add(
                        value, self._start(unit, index, value), self._end(value, index)
                    )
            if unit.kind is FusionKind.REGION:
                self._open(unit, index)
        return self._memory(tuple(fixed))

    def with_gaps(self, memory: MemoryCurve) -> MemoryCurve:
        """The memory of a run whose blocks are packed by themselves."""
        gaps = self._packed_bytes() - (max(memory.curve) - memory.curve[0])
        return replace(memory, fragmentation_bytes=max(0, gaps))

    def _add(self, value: Value, start: int, end: int) -> None:
        if end >= start:
            self.block_of[value] = len(self.blocks)
            self.blocks.append(BufferInterval(self.layout.size(value), start, end))
            self.owners.append((value,))

    def _start(self, unit: Fusion, index: int, value: Value) -> int:
        """The first unit beside which a value that `unit` writes stands."""
        if self.rules.calls_library and any(
            wire.is_stacked
            and wire.result is not None
            and unit.root.results[wire.result] is value
            for wire in unit.root.wires
        ):
            return 0
        return self.runs[index][0]

    def _overwrites(self, unit: Fusion, index: int, value: Value) -> bool:
        """Whether a value takes an operand's block over; if so, it then has it."""
        operands = unit.overwrites
        if operands and not self.rules.calls_library:
            operands = [v for v in operands if self._gives_place(v, value)]
        if value in unit.replaces:
            same = self.layout.size(unit.replaces[value]) == self.layout.size(value)
            operands = (unit.replaces[value],) if same else ()
        for operand in operands:
            number = self.block_of.get(operand)
            if number is None or self.blocks[number].end != index:
                continue
            size, start, _ = self.blocks[number]
            self.blocks[number] = BufferInterval(size, start, self._end(value, index))
            self.owners[number] = (value,)
            self.block_of[value] = number
            del self.block_of[operand]
            self.overwritten.add(operand)
            return True
        return False

    def _gives_place(self, operand: Value, result: Value) -> bool:
        """Whether an elementwise result may come in an operand's place.

        A sum of an array is taken in the pass that writes it, so that the array comes
        with that; also where something stands between the two here, such as a gather
        of a bias, that a compiler runs before both.
        """
        size = self.layout.size
        alone = operand not in self.together and operand not in self.summed
        return alone and size(operand) == size(result)

    def _end(self, value: Value, made: int) -> int:
        """The last unit beside which a value stands."""
        if value in self.outputs:
            return len(self.units)
        last = self.last.get(value, made)
        over = (
            self.units[last].kind is FusionKind.OTHER
            and self.units[last].in_place is value
        )
        if over and last > made:
            self.overwritten.add(value)
            return last - 1
        return last

    def _is_in_place(self, value: Value, output: Atom) -> bool:
        """Whether the unit that writes `output` is the last to read `value`, in step.

        Or is a loop that carries it in and the output out.
        """
        unit = self.units[self.last[value]]
        if isinstance(output, Value) and unit.replaces.get(output) is value:
            return self.layout.size(output) == self.layout.size(value)
        in_step = unit.kind is FusionKind.LOOP or unit.in_place is value
        return in_step and output in unit.writes

    def _open(self, unit: Fusion, index: int) -> None:
        """Add what the largest body of a region needs beside what is alive outside.

        An operand that is no slice of one is the same memory inside.
        """
        op, library = unit.root, self.rules.calls_library
        shared = {p for wire in op.wires if not wire.is_stacked for p in wire.inputs}
        most: tuple[int, tuple[Value, ...]] = 0, ()
        heaps = self.bodies[index] = []
        for number, (body, units) in enumerate(
            zip(op.bodies, unit.bodies, strict=True)
        ):
            same = {v for i, v in enumerate(body.inputs) if (number, i) in shared}
            given = [v for v in body.inputs if library or v not in same]
            kept = handed_out(op, number, self.rules)
            if self.rules.hands_out_last:
                units = in_turn(op, number, units)
            heap = Heap(self.layout, units, kept, self.rules, self.together)
            taken = {} if library else handed_on(op, number, units, self.layout)
            inner = heap.run((), given, taken)
            if not self.rules.packs_in_time:
                inner = heap.with_gaps(inner)
            heaps.append(heap)
            outside = sum(map(self.layout.size, same)) if library else 0
            if inner.peak_bytes - outside > most[0]:
                inside = inner.alive
                if library:
                    inside = tuple(v for v in inside if v not in same)
                most = inner.peak_bytes - outside, inside
        if most[0] > 0:
            self.whole_bodies.add(len(self.blocks))
            self.blocks.append(BufferInterval(most[0], index, index))
            self.owners.append(most[1])

    def _memory(self, fixed: tuple[Value, ...]) -> MemoryCurve:
        there = sum(map(self.layout.size, fixed))
        live = live_bytes(self.blocks, len(self.units))
        curve = [there, *(there + num_bytes for num_bytes in live)]
        peak = max(range(len(curve)), key=curve.__getitem__) - 1
        alive = [
            value
            for block, owners in zip(self.blocks, self.owners, strict=True)
            if block.start <= peak <= block.end
            for value in owners
        ]
        ordered = sorted((*fixed, *alive), key=self.layout.size, reverse=True)
        overwritten = frozenset(self.overwritten)
        return MemoryCurve(tuple(curve), peak, tuple(ordered), overwritten)

    def _in_time(self, clock: int = 0) -> tuple[list[BufferInterval], int]:
        """Blocks, those of bodies among them, and the step after the last.

        Steps are counted from `clock` on, those of bodies within their region's.
        """
        if not self.bodies and not clock:
            return self.blocks, len(self.units) + 1
        found: list[BufferInterval] = []
        first: list[int] = []
        last: list[int] = []
        for index in range(len(self.units) + 1):
            first.append(clock)
            for body in self.bodies.get(index, ()):
                inside, clock = body._in_time(clock)
                found += inside
            last.append(clock)
            clock += 1
        found += [
            BufferInterval(block.size, first[block.start], last[block.end])
            for number, block in enumerate(self.blocks)
            if number not in self.whole_bodies
        ]
        return found, clock

    def _packed_bytes(self) -> int:
        if self.rules.packs_in_time:
            blocks, step = self._in_time()[0], self.rules.step_bytes
            if step:
                blocks = [
                    BufferInterval(-(-s // step) * step, a, b) for s, a, b in blocks
                ]
            return packed_in_time(blocks)
        if not self.rules.calls_library:
            return packed_bytes(self.blocks)
        own = {self.block_of[v] for v in self.outputs if v in self.block_of}
        rest = [b for i, b in enumerate(self.blocks) if i not in own]
        return packed_with_results(rest, [self.blocks[i] for i in sorted(own)])

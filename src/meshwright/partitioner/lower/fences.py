"""Fences in device programs, where a compiler would fail or change what is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from meshwright.program.analysis.accumulators import ADDS, SUMS, carries
from meshwright.program.ir import LOOPS, Atom, Op, Program, Value

_FLOATS = ("float", "bfloat", "complex")


def fence_totals(loop: Op) -> Op:
    """A loop whose rounded sums stay in their turns.

    before: total + float32(bfloat16(reduce_scatter(x)))
    after: the same with a barrier behind the reduce_scatter

    The TPU compiler takes what a loop adds up out of it and looks through conversions for
    that. Where it then finds a reduce-scatter that it cannot move it fails ("RET_CHECK
    failure ... while_loop_all_reduce_code_motion.cc", libtpu 0.0.50): so are gradients of
    a scale that a step rounds, in 32 bits, under ZeRO with several batches a step. And
    where a sum is made a whole number it moves that too, so that each device's addend is
    cut off, not the sum.
    """
    fenced = {total.value for total in _Flow(loop).totals() if total.is_risky}
    if not fenced:
        return loop
    bodies = tuple(_fenced(body, fenced) for body in loop.bodies)
    return replace(loop, bodies=bodies)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum over devices, converted or not.

    value: as it was made. dtype: that it has now. is_cut_off: whether it went from a
    float to a whole number.
    """

    value: Value
    is_scattered: bool
    dtype: str
    is_converted: bool = False
    is_cut_off: bool = False

    @property
    def is_risky(self) -> bool:
        """Whether it was rounded on the way back to its dtype, or cut off."""
        is_rounded = self.is_converted and self.dtype == self.value.dtype
        return self.is_cut_off or (is_rounded and self.is_scattered)

    def converted(self, dtype: str) -> _Sum:
        """The same in another dtype."""
        is_cut_off = self.dtype.startswith(_FLOATS) and not dtype.startswith(_FLOATS)
        return replace(
            self,
            dtype=dtype,
            is_converted=True,
            is_cut_off=self.is_cut_off or is_cut_off,
        )


@dataclass(frozen=True, slots=True)
class _Carried:
    """What a loop carries: the position in its body's inputs, with what was added."""

    position: int
    added: _Sum | None = None


class _Flow:
    """Where sums and what is carried go in one turn of a loop, through remats too."""

    def __init__(self, loop: Op) -> None:
        self.loop = loop
        self.of: dict[Atom, _Sum | _Carried] = {}
        self.reads: Counter[int] = Counter()

    def totals(self) -> Iterator[_Sum]:
        """What the loop adds to what nobody else reads."""
        for _, total in self.added():
            yield total

    def added(self) -> Iterator[tuple[int, _Sum]]:
        """The same, each with the position of the loop's result."""
        ends = [(result, wire) for _, result, wire in carries(self.loop)]
        turn = {body for _, wire in ends for body, _ in wire.outputs}
        for number in turn:
            body = self.loop.bodies[number]
            starts = {i for _, wire in ends for at, i in wire.inputs if at == number}
            self.of |= {body.inputs[i]: _Carried(i) for i in starts}
            self._walk(body)
            for found in map(self.of.get, body.outputs):
                if isinstance(found, _Carried):
                    self.reads[found.position] += 1
        for result, wire in ends:
            ((number, o),) = wire.outputs
            end = self.of.get(self.loop.bodies[number].outputs[o])
            if not isinstance(end, _Carried) or end.added is None:
                continue
            # By the addition, and by the next turn.
            if (number, end.position) in wire.inputs and self.reads[end.position] == 2:
                yield result, end.added

    def _walk(self, program: Program) -> None:
        for op in program.ops:
            if op.kind == "remat":
                self._through(op)
                continue
            for operand in op.operands:
                found = self.of.get(operand)
                if isinstance(found, _Carried):
                    self.reads[found.position] += 1
            if op.kind in LOOPS:
                # The compiler has taken what it adds up out of it before.
                for result, total in _Flow(op).added():
                    value = op.results[result]
                    self.of[value] = _Sum(value, total.is_scattered, value.dtype)
            elif op.results:
                found = self._made(op)
                if found is not None:
                    self.of[op.results[0]] = found

    def _through(self, op: Op) -> None:
        (body,) = op.bodies
        for wire in op.wires:
            if wire.operand is not None and op.operands[wire.operand] in self.of:
                for _, i in wire.inputs:
                    self.of[body.inputs[i]] = self.of[op.operands[wire.operand]]
        self._walk(body)
        for wire in op.wires:
            ends = [body.outputs[i] for _, i in wire.outputs]
            if wire.result is not None and ends and ends[0] in self.of:
                self.of[op.results[wire.result]] = self.of[ends[0]]

    def _made(self, op: Op) -> _Sum | _Carried | None:
        """What an op makes of sums, and of what is carried."""
        if op.kind in SUMS and op.params["monoid"] == "sum":
            (value,) = op.results
            return _Sum(value, op.kind == "reduce_scatter", value.dtype)
        found = [self.of.get(operand) for operand in op.operands]
        if op.kind == "convert_element_type" and isinstance(found[0], _Sum):
            return found[0].converted(op.results[0].dtype)
        if op.kind in ADDS:
            sums = [each for each in found if isinstance(each, _Sum)]
            carried = [each for each in found if isinstance(each, _Carried)]
            if sums and carried and carried[0].added is None:
                return _Carried(carried[0].position, sums[0])
        return None


def _fenced(program: Program, fenced: Collection[Value]) -> Program:
    """A body, and remats in it, with a barrier between some values and conversions."""
    renamed: dict[Atom, Atom] = {}
    ops: list[Op] = []
    for op in program.ops:
        operands, bodies = op.operands, op.bodies
        if op.kind == "convert_element_type" or op.bodies:
            operands = tuple(renamed.get(atom, atom) for atom in operands)
        if op.kind == "remat":
            bodies = tuple(_fenced(body, fenced) for body in op.bodies)
        is_same = operands == op.operands and bodies == op.bodies
        ops.append(op if is_same else replace(op, operands=operands, bodies=bodies))
        for value in op.results:
            if value in fenced:
                kept = Value(value.shape, value.dtype)
                barrier = Op(
                    "optimization_barrier", (value,), (kept,), source=op.source
                )
                ops.append(barrier)
                renamed[value] = kept
    outputs = tuple(renamed.get(atom, atom) for atom in program.outputs)
    return replace(program, ops=tuple(ops), outputs=outputs)

"""Barriers that keep XLA from failing on a device program, or from changing its result.

XLA's pass WhileLoopAllReduceCodeMotion moves the all-reduce of an accumulator out of a
loop: it sums once, after the loop, what each device has accumulated. The pass looks
through dtype conversions, selections and reshapes. Two kinds of accumulators break it
(libtpu 0.0.50):

- A reduce-scatter whose result is rounded before it is accumulated, or both converted
  and selected. Compilation fails: "RET_CHECK failure ...
  while_loop_all_reduce_code_motion.cc ... user->opcode() == HloOpcode::kAdd". A float32
  gradient that is added to a bfloat16 total has this form, with ZeRO and gradient
  accumulation. A result that is only widened compiles.
- A sum that is converted to an integer before it is accumulated. The pass then truncates
  each device's addend instead of the sum: eight addends of 0.5 give 0, not 4.

Lowering applies `XLA_WORKAROUNDS` to every loop of a device program, inner loops first.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from meshwright.partitioner.lower import Workaround
from meshwright.predict.compilers.model.fusion import BARRIER
from meshwright.program.analysis.accumulators import loop_carries
from meshwright.program.ir import Atom, Op, Program, Value, itemsize_bytes
from meshwright.program.ops import Trait, has_trait

_INEXACT = ("float", "bfloat", "complex")


def keep_reductions_inside(loop: Op) -> Op:
    """The loop with a barrier after each reduction that XLA must not move out of it.

    before: total + bfloat16(reduce_scatter(x))
    after: total + bfloat16(optimization_barrier(reduce_scatter(x)))
    """
    reductions = {r.value for _, r in _Dataflow(loop).accumulated() if r.is_risky}
    if not reductions:
        return loop
    bodies = tuple(_with_barriers(body, reductions) for body in loop.bodies)
    return replace(loop, bodies=bodies)


XLA_WORKAROUNDS: tuple[Workaround, ...] = (keep_reductions_inside,)
"""Rewrites of loops that every device program needs which XLA compiles."""


@dataclass(frozen=True, slots=True)
class _Reduction:
    """The result of a cross-device sum, possibly after dtype conversions and selections.

    value: the result before any conversion. is_scattered: whether it is a reduce-scatter.
    dtypes: the dtype of `value`, then those to which it was converted. is_selected: whether
    a mask selects between it and another value.
    """

    value: Value
    is_scattered: bool
    dtypes: tuple[str, ...]
    is_selected: bool = False

    @property
    def is_risky(self) -> bool:
        """Whether XLA fails on accumulating it, or changes the result."""
        converted = [*pairwise(self.dtypes)]
        if any(_is_truncated(before, after) for before, after in converted):
            return True
        is_rounded = any(_is_rounded(before, after) for before, after in converted)
        is_chosen = self.is_selected and bool(converted)
        return self.is_scattered and (is_rounded or is_chosen)


def _is_reshape(op: Op) -> bool:
    """Whether a result has the elements of the first operand, perhaps in another shape."""
    if len(op.results) != 1:  # such as those of a split
        return False
    (result,), operand = op.results, op.operands[0]
    is_moved = op.kind != BARRIER and any(has_trait(op.kind, t) for t in _MOVES)
    is_same_size = math.prod(result.shape) == math.prod(operand.shape)
    return is_moved and is_same_size and result.dtype == operand.dtype


_MOVES = (Trait.ALIASES_OPERAND, Trait.MOVES, Trait.REPEATS)


def _is_truncated(before: str, after: str) -> bool:
    return before.startswith(_INEXACT) and not after.startswith(_INEXACT)


def _is_rounded(before: str, after: str) -> bool:
    return before != after and itemsize_bytes(after) <= itemsize_bytes(before)


@dataclass(frozen=True, slots=True)
class _Carry:
    """A value that a loop carries: its position among the body's inputs, and its addend."""

    position: int
    added: _Reduction | None = None


class _Dataflow:
    """Reductions and loop-carried values of one iteration, rematted regions included."""

    def __init__(self, loop: Op) -> None:
        self.loop = loop
        self.of: dict[Atom, _Reduction | _Carry] = {}
        self.num_reads: Counter[int] = Counter()

    def accumulated(self) -> Iterator[tuple[int, _Reduction]]:
        """Reductions that the loop only adds up, with their positions among its results."""
        ends = [(result, wire) for _, result, wire in loop_carries(self.loop)]
        for number in {body for _, wire in ends for body, _ in wire.outputs}:
            body = self.loop.bodies[number]
            starts = {i for _, wire in ends for at, i in wire.inputs if at == number}
            self.of |= {body.inputs[i]: _Carry(i) for i in starts}
            self._visit(body)
            for found in map(self.of.get, body.outputs):
                if isinstance(found, _Carry):
                    self.num_reads[found.position] += 1
        for result, wire in ends:
            ((number, output),) = wire.outputs
            end = self.of.get(self.loop.bodies[number].outputs[output])
            if not isinstance(end, _Carry) or end.added is None:
                continue
            # The addition reads the accumulator once, the next iteration once more.
            is_only_added = self.num_reads[end.position] == 2
            if (number, end.position) in wire.inputs and is_only_added:
                yield result, end.added

    def _visit(self, program: Program) -> None:
        for op in program.ops:
            if op.kind == "remat":
                self._visit_remat(op)
                continue
            for operand in op.operands:
                found = self.of.get(operand)
                if isinstance(found, _Carry):
                    self.num_reads[found.position] += 1
            if has_trait(op.kind, Trait.LOOP):
                # XLA moves reductions out of the inner loop before it visits this one.
                for result, reduction in _Dataflow(op).accumulated():
                    value = op.results[result]
                    dtypes = (value.dtype,)
                    self.of[value] = _Reduction(value, reduction.is_scattered, dtypes)
            elif op.results:
                found = self._result(op)
                if found is not None:
                    self.of[op.results[0]] = found

    def _visit_remat(self, op: Op) -> None:
        (body,) = op.bodies
        for wire in op.wires:
            if wire.operand is not None and op.operands[wire.operand] in self.of:
                for _, i in wire.inputs:
                    self.of[body.inputs[i]] = self.of[op.operands[wire.operand]]
        self._visit(body)
        for wire in op.wires:
            ends = [body.outputs[i] for _, i in wire.outputs]
            if wire.result is not None and ends and ends[0] in self.of:
                self.of[op.results[wire.result]] = self.of[ends[0]]

    def _result(self, op: Op) -> _Reduction | _Carry | None:
        """The reduction or carried value that an op's result stands for, if any."""
        if (
            has_trait(op.kind, Trait.COLLECTIVE_REDUCTION)
            and op.params["monoid"] == "sum"
        ):
            (value,) = op.results
            return _Reduction(value, op.kind == "reduce_scatter", (value.dtype,))
        found = [self.of.get(operand) for operand in op.operands]
        if op.kind == "convert_element_type" and isinstance(found[0], _Reduction):
            dtypes = (*found[0].dtypes, op.results[0].dtype)
            return replace(found[0], dtypes=dtypes)
        if isinstance(found[0] if found else None, _Reduction) and _is_reshape(op):
            return found[0]
        if has_trait(op.kind, Trait.CHOOSES):
            chosen = [each for each in found if isinstance(each, _Reduction)]
            return replace(chosen[0], is_selected=True) if chosen else None
        if has_trait(op.kind, Trait.ADDS):
            reductions = [each for each in found if isinstance(each, _Reduction)]
            carried = [each for each in found if isinstance(each, _Carry)]
            if reductions and carried and carried[0].added is None:
                return _Carry(carried[0].position, reductions[0])
        return None


def _with_barriers(program: Program, reductions: Collection[Value]) -> Program:
    """The body, rematted regions included, with a barrier after each of the reductions."""
    renamed: dict[Atom, Atom] = {}
    ops: list[Op] = []
    for op in program.ops:
        operands = tuple(renamed.get(atom, atom) for atom in op.operands)
        bodies = op.bodies
        if op.kind == "remat":
            bodies = tuple(_with_barriers(body, reductions) for body in op.bodies)
        is_same = operands == op.operands and bodies == op.bodies
        ops.append(op if is_same else replace(op, operands=operands, bodies=bodies))
        for value in op.results:
            if value in reductions:
                renamed[value] = kept = Value(value.shape, value.dtype)
                ops.append(Op(BARRIER, (value,), (kept,), source=op.source))
    outputs = tuple(renamed.get(atom, atom) for atom in program.outputs)
    return replace(program, ops=tuple(ops), outputs=outputs)

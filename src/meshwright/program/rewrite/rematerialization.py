"""Rematerialization: values are computed a second time rather than kept in memory.

A training step computes values in its forward pass and reads some of them in its
backward pass (JAX calls these residuals). A residual that is not to be kept is computed
again just before its first reader in the backward pass, from the values that are kept.
An optimization barrier stands before the second computation: without it, a compiler
would merge it with the first (XLA: `HloCSE`). If a scan of the forward pass stacks
values for a scan of the backward pass, the backward scan computes them again itself,
iteration by iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from meshwright.program.analysis.live_ranges import (
    BufferInterval,
    live_bytes,
    live_ranges,
)
from meshwright.program.ir import Atom, Op, Program, Value, Wire, num_bytes
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rewrite.recomputation import Recomputation, behind_barrier


def backward_start(program: Program) -> int:
    """The index of the first op of the backward pass.

    It is taken to be the position at which most bytes of ops' results are live. The
    program's inputs do not count, since they are live throughout.
    """
    end = len(program.ops)
    ranges = live_ranges((op.operands, op.results) for op in program.ops)
    last = {**ranges.last_uses, **dict.fromkeys(program.outputs, end)}
    # A result is live at all positions after its op, up to its last reader.
    live = live_bytes(
        (
            BufferInterval(num_bytes(value), index + 1, last.get(value, index))
            for value, index in ranges.definitions.items()
        ),
        end + 1,
    )
    return max(range(end + 1), key=live.__getitem__)


def residuals(program: Program, start: int) -> tuple[Value, ...]:
    """The results of the first `start` ops that later ops read, in program order."""
    read = {a for op in program.ops[start:] for a in op.operands}
    return tuple(r for op in program.ops[:start] for r in op.results if r in read)


def rematerialize(program: Program, keep: Collection[Value], start: int) -> Program:
    """The program that computes its residuals a second time, except those in `keep`.

    keep: values of the program and of its loops' bodies; a value of a body is kept for
        all iterations. Results of ops with effects and of loops are always kept, except
        arrays that a scan stacks and a later scan reads iteration by iteration.
    start: index of the first op of the backward pass.
    Law: the result computes the same.
    """
    program = rematerialize_scans(program, keep, start)
    ops = [*program.ops[:start]]
    second = Recomputation(program.ops[:start], keep, behind_barrier)
    for op in program.ops[start:]:
        operands: list[Atom] = []
        for operand in op.operands:
            ops += second.ops_for(operand)
            operands.append(second.copies.get(operand, operand))
        changed = operands != [*op.operands]
        ops.append(replace(op, operands=tuple(operands)) if changed else op)
    return eliminate_dead_code(replace(program, ops=tuple(ops)))


def rematerialize_scans(
    program: Program, keep: Collection[Value], start: int
) -> Program:
    """The program whose backward scans recompute values that forward scans stack.

    Forward scans run before op `start`, backward scans from there on. A backward scan
    of as many iterations as a forward one computes the stacked values again, iteration
    by iteration, from values that are kept: values of the forward body that are in
    `keep`, its carries (which are stacked for this), and the operands of the forward
    scan. Arrays that nobody reads afterwards are left for dead code elimination.

    keep: values of bodies to keep, and stacked values that stay as they are.
    """
    ops = [*program.ops]
    scans = [index for index, op in enumerate(ops) if op.kind == "scan"]
    for after in (index for index in scans if index >= start):
        for before in (index for index in scans if index < start):
            if _are_a_pair(ops[before], ops[after]):
                ops[before], ops[after] = _rematerialized(ops[before], ops[after], keep)
    return replace(program, ops=tuple(ops))


def stacked_residuals(first: Op, second: Op) -> Mapping[Value, Value]:
    """The values that one scan stacks and another reads in the same iteration.

    Keyed by the input of the second scan's body that receives the value; each entry is
    the value in the first scan's body.
    """
    if not _are_a_pair(first, second):
        return {}
    stacked = {
        first.results[wire.result]: first.bodies[0].outputs[wire.outputs[0][1]]
        for wire in first.wires
        if wire.is_stacked and wire.outputs and wire.result is not None
    }
    found: dict[Value, Value] = {}
    for wire in second.wires:
        if wire.is_stacked and wire.inputs and wire.operand is not None:
            value = stacked.get(second.operands[wire.operand])  # pyright: ignore[reportArgumentType]
            if isinstance(value, Value):
                found[second.bodies[0].inputs[wire.inputs[0][1]]] = value
    return found


def _are_a_pair(first: Op, second: Op) -> bool:
    if first.kind != "scan" or second.kind != "scan":
        return False
    return first.params["length"] == second.params["length"]


def _rematerialized(first: Op, second: Op, keep: Collection[Value]) -> tuple[Op, Op]:
    """Both scans, rewritten so that the second recomputes values for itself.

    The first scan stacks only the values that are kept.
    """
    pair = _ScanPair(_Scan(first), _Scan(second))
    recomputed = Recomputation(first.bodies[0].ops, keep, pair.fetch)
    kept = {
        first.bodies[0].outputs[wire.outputs[0][1]]
        for wire in first.wires
        if wire.result is not None and wire.is_stacked
        if first.results[wire.result] in keep
    }
    replaced = {
        inner: value
        for inner, value in stacked_residuals(first, second).items()
        if recomputed.can_recompute(value) and value not in kept
    }
    if not replaced:
        return first, second
    ops: list[Op] = []

    def substitute(atom: Atom) -> Atom:
        value = replaced.get(atom)  # pyright: ignore[reportArgumentType]
        if value is None:
            return atom
        ops.extend(recomputed.ops_for(value))
        return recomputed.copies[value]

    body = second.bodies[0]
    for op in body.ops:
        operands = tuple(map(substitute, op.operands))
        ops.append(replace(op, operands=operands))
    outputs = tuple(map(substitute, body.outputs))
    return pair.first.op(), pair.second.op(tuple(ops), outputs)


class _ScanPair:
    """A forward scan, and the backward scan that recomputes the same iterations."""

    def __init__(self, first: _Scan, second: _Scan) -> None:
        self.first, self.second = first, second

    def fetch(self, value: Value) -> tuple[Value, tuple[Op, ...]]:
        """A value of the forward body as an input of the backward body, and no ops.

        The value gets a path (`ir.Wire`) into the backward scan and, if it has none
        yet, one out of the forward scan, which stacks it.
        """
        first, second = self.first, self.second
        wire = first.wire_into(value)
        if value in first.constants:
            found = second.add_constant(first.constants[value], value)
        elif wire is None or wire.outputs:
            found = second.read(first.stack(value), is_stacked=True)
        else:
            assert wire.operand is not None
            found = second.read(first.operands[wire.operand], wire.is_stacked)
        return found, ()


class _Scan:
    """A scan to which inputs and outputs of its body, with wires, are being added."""

    def __init__(self, op: Op) -> None:
        self._op = op
        body = op.bodies[0]
        self.operands = [*op.operands]
        self.constants = dict(body.constants)
        self._results = [*op.results]
        self._wires = [*op.wires]
        self._inputs = [*body.inputs]
        self._outputs = [*body.outputs]

    def wire_into(self, value: Value) -> Wire | None:
        """The wire by which a value enters the body; `None` if the body computes it."""
        for wire in self._wires:
            if wire.inputs and self._inputs[wire.inputs[0][1]] is value:
                return wire
        return None

    def stack(self, value: Value) -> Value:
        """The scan's result that stacks a value of its body.

        Added if there is none yet.
        """
        for wire in self._wires:
            if not wire.is_stacked or wire.result is None:
                continue
            if self._outputs[wire.outputs[0][1]] is value:
                return self._results[wire.result]
        length = self._op.params["length"]
        stacked = Value((length, *value.shape), value.dtype)
        ends = (0, len(self._outputs)), len(self._results)
        self._wires.append(Wire(None, (), ends[:1], ends[1], is_stacked=True))
        self._outputs.append(value)
        self._results.append(stacked)
        return stacked

    def read(self, outer: Atom, is_stacked: bool) -> Value:
        """The body's input for a value from outside; added if there is none yet."""
        for wire in self._wires:
            if (
                wire.operand is None
                or wire.is_stacked is not is_stacked
                or wire.outputs
            ):
                continue
            if self.operands[wire.operand] is outer:
                return self._inputs[wire.inputs[0][1]]
        inner = Value(outer.shape[1:] if is_stacked else outer.shape, outer.dtype)
        ends = len(self.operands), ((0, len(self._inputs)),)
        self._wires.append(Wire(*ends, is_stacked=is_stacked))
        self.operands.append(outer)
        self._inputs.append(inner)
        return inner

    def add_constant(self, array: object, value: Value) -> Value:
        """Add `array` as a constant of the body, and return its value.

        The new value has the shape and dtype of `value`.
        """
        made = Value(value.shape, value.dtype)
        self.constants[made] = array
        return made

    def op(
        self, ops: tuple[Op, ...] | None = None, outputs: tuple[Atom, ...] = ()
    ) -> Op:
        """The scan with all inputs and outputs added so far.

        ops, outputs: ops and outputs of its body, if they are to be replaced.
        """
        body = self._op.bodies[0]
        changed = Program(
            tuple(self._inputs),
            body.ops if ops is None else ops,
            tuple(self._outputs) if ops is None else outputs,
            self.constants,
        )
        return replace(
            self._op,
            operands=tuple(self.operands),
            results=tuple(self._results),
            wires=tuple(self._wires),
            bodies=(changed,),
        )

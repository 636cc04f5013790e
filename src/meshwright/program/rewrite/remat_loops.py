"""What a loop stacks for a later one, made again turn by turn in the later one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from meshwright.program.ir.program import Atom, Op, Program, Value, Wire
from meshwright.program.rewrite.rematerialize import Again


def recompute_in_loops(program: Program, keep: Collection[Value], turn: int) -> Program:
    """The program whose loops behind the turn make again what those before it stack.

    A loop that reads, turn by turn, what one of as many turns has stacked makes it again
    of what is kept: of values in the first loop's body that are in `keep`, of its
    carries, which are stacked for this, and of what the first loop reads itself. What
    nobody reads any more is left to be pruned. keep: also stacked values as they are.
    """
    ops = [*program.ops]
    loops = [index for index, op in enumerate(ops) if op.kind == "scan"]
    for after in (index for index in loops if index >= turn):
        for before in (index for index in loops if index < turn):
            if _are_a_pair(ops[before], ops[after]):
                ops[before], ops[after] = _remade(ops[before], ops[after], keep)
    return replace(program, ops=tuple(ops))


def read_in_turns(first: Op, second: Op) -> Mapping[Value, Value]:
    """What the first loop makes in a turn for the same turn of the second.

    By input of the second's body, the value in the first's; both loops are scans.
    """
    if not _are_a_pair(first, second):
        return {}
    made = {
        first.results[wire.result]: first.bodies[0].outputs[wire.outputs[0][1]]
        for wire in first.wires
        if wire.is_stacked and wire.outputs and wire.result is not None
    }
    found: dict[Value, Value] = {}
    for wire in second.wires:
        if wire.is_stacked and wire.inputs and wire.operand is not None:
            value = made.get(second.operands[wire.operand])  # pyright: ignore[reportArgumentType]
            if isinstance(value, Value):
                found[second.bodies[0].inputs[wire.inputs[0][1]]] = value
    return found


def _are_a_pair(first: Op, second: Op) -> bool:
    if first.kind != "scan" or second.kind != "scan":
        return False
    return first.params["length"] == second.params["length"]


def _remade(first: Op, second: Op, keep: Collection[Value]) -> tuple[Op, Op]:
    """Both loops, the first stacking what is kept, the second making the rest."""
    again = _AgainInLoop(first, second, keep)
    stacked = {
        first.bodies[0].outputs[wire.outputs[0][1]]
        for wire in first.wires
        if wire.result is not None and wire.is_stacked
        if first.results[wire.result] in keep
    }
    remade = {
        inner: value
        for inner, value in read_in_turns(first, second).items()
        if again.can_make(value) and value not in stacked
    }
    if not remade:
        return first, second
    ops: list[Op] = []

    def named(atom: Atom) -> Atom:
        value = remade.get(atom)  # pyright: ignore[reportArgumentType]
        if value is None:
            return atom
        ops.extend(again.ops_for(value))
        return again.made[value]

    body = second.bodies[0]
    for op in body.ops:
        operands = tuple(map(named, op.operands))
        ops.append(replace(op, operands=operands))
    outputs = tuple(map(named, body.outputs))
    return again.first.op(), again.second.op(tuple(ops), outputs)


class _AgainInLoop(Again):
    """What one turn makes again of another loop's same turn."""

    def __init__(self, first: Op, second: Op, keep: Collection[Value]) -> None:
        super().__init__(first.bodies[0].ops, keep)
        self.first, self.second = _Loop(first), _Loop(second)

    def fetch(self, value: Value) -> Iterator[Op]:
        """No op, but a wire into the second loop, and one out of the first if need be."""
        first, second = self.first, self.second
        wire = first.entering(value)
        if value in first.constants:
            found = second.constant(first.constants[value], value)
        elif wire is None or wire.outputs:
            found = second.enter(first.stack(value), is_stacked=True)
        else:
            assert wire.operand is not None
            found = second.enter(first.operands[wire.operand], wire.is_stacked)
        self.fetched[value] = found
        yield from ()


class _Loop:
    """A scan to which wires are being added."""

    def __init__(self, op: Op) -> None:
        self._op = op
        body = op.bodies[0]
        self.operands = [*op.operands]
        self.constants = dict(body.constants)
        self._results = [*op.results]
        self._wires = [*op.wires]
        self._inputs = [*body.inputs]
        self._outputs = [*body.outputs]

    def entering(self, value: Value) -> Wire | None:
        """The wire by which a value enters the body; None if it is made there."""
        for wire in self._wires:
            if wire.inputs and self._inputs[wire.inputs[0][1]] is value:
                return wire
        return None

    def stack(self, value: Value) -> Value:
        """What each turn finds or makes, as a result of the loop."""
        for wire in self._wires:
            if not wire.is_stacked or wire.result is None:
                continue
            if self._outputs[wire.outputs[0][1]] is value:
                return self._results[wire.result]
        length = self._op.params["length"]
        stacked = Value((length, *value.shape), value.dtype)  # pyright: ignore[reportArgumentType]
        ends = (0, len(self._outputs)), len(self._results)
        self._wires.append(Wire(None, (), ends[:1], ends[1], is_stacked=True))
        self._outputs.append(value)
        self._results.append(stacked)
        return stacked

    def enter(self, outer: Atom, is_stacked: bool) -> Value:
        """A value from outside as the body sees it."""
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

    def constant(self, array: object, value: Value) -> Value:
        """An array that the body closes over."""
        made = Value(value.shape, value.dtype)
        self.constants[made] = array
        return made

    def op(
        self, ops: tuple[Op, ...] | None = None, outputs: tuple[Atom, ...] = ()
    ) -> Op:
        """The loop with all wires; with other ops and outputs, if there are any."""
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

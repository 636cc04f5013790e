"""A scan to which inputs and outputs of its body, with their wires, are being added."""

from collections.abc import Sequence
from dataclasses import replace

from meshwright.program.ir import Atom, Op, Program, Value, Wire


class ScanEditor:
    """A scan to which inputs and outputs of its body, with wires, are being added.

    operands, inputs, outputs: those of the scan and of its body so far.
    constants: the body's constants so far.
    """

    def __init__(self, op: Op) -> None:
        self._op = op
        (body,) = op.bodies
        self.operands: list[Atom] = [*op.operands]
        self.inputs: list[Value] = [*body.inputs]
        self.outputs: list[Atom] = [*body.outputs]
        self.constants = dict(body.constants)
        self._results: list[Value] = [*op.results]
        self._wires: list[Wire] = [*op.wires]

    def wire_into(self, value: Value) -> Wire | None:
        """The wire by which a value enters the body; `None` if the body computes it."""
        for wire in self._wires:
            if wire.inputs and self.inputs[wire.inputs[0][1]] is value:
                return wire
        return None

    def stack(self, value: Value) -> Value:
        """The scan's result that stacks a value of its body.

        Added if there is none yet.
        """
        for wire in self._wires:
            if not wire.is_stacked or wire.result is None:
                continue
            if self.outputs[wire.outputs[0][1]] is value:
                return self._results[wire.result]
        shape = (self._op.params["length"], *value.shape)
        ends = ((0, len(self.outputs)),)
        self._wires.append(Wire(None, (), ends, len(self._results), is_stacked=True))
        self.outputs.append(value)
        self._results.append(Value(shape, value.dtype))
        return self._results[-1]

    def read(self, outer: Atom, is_stacked: bool) -> Value:
        """The body's input for a value from outside; added if there is none yet."""
        for wire in self._wires:
            if wire.operand is None or wire.outputs:
                continue
            is_same = self.operands[wire.operand] is outer
            if is_same and wire.is_stacked is is_stacked:
                return self.inputs[wire.inputs[0][1]]
        return self.enter(outer, is_stacked)

    def enter(self, outer: Atom, is_stacked: bool = False) -> Value:
        """A new input of the body for a value from outside.

        is_stacked: whether each iteration gets one element along the value's first dim.
        """
        inner = Value(outer.shape[1:] if is_stacked else outer.shape, outer.dtype)
        ends = ((0, len(self.inputs)),)
        self._wires.append(Wire(len(self.operands), ends, is_stacked=is_stacked))
        self.operands.append(outer)
        self.inputs.append(inner)
        return inner

    def carry(self, first: Atom, current: Value, following: Atom) -> None:
        """Carry a value from one iteration to the next.

        first: the value in the first iteration, from outside.
        current, following: the body's values of one iteration and of the next one.
        """
        ends = ((0, len(self.inputs)),), ((0, len(self.outputs)),)
        self._wires.append(Wire(len(self.operands), *ends, len(self._results)))
        self.operands.append(first)
        self.inputs.append(current)
        self.outputs.append(following)
        self._results.append(Value(current.shape, current.dtype))

    def op(
        self, ops: Sequence[Op] | None = None, outputs: Sequence[Atom] | None = None
    ) -> Op:
        """The scan with all inputs and outputs added so far.

        ops, outputs: ops and outputs of its body, if they are to be replaced.
        """
        (body,) = self._op.bodies
        changed = Program(
            tuple(self.inputs),
            body.ops if ops is None else tuple(ops),
            tuple(self.outputs if outputs is None else outputs),
            self.constants,
        )
        return replace(
            self._op,
            operands=tuple(self.operands),
            results=tuple(self._results),
            wires=tuple(self._wires),
            bodies=(changed,),
        )

"""The verifier of programs, which tests run after every rewrite."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from meshwright.program.ir.program import Op, Program, ProgramWriter, show_param
from meshwright.program.ir.values import Atom, Value, Wire


def verify(program: Program) -> None:
    """Assert that a program is well formed; if not, the pass that made it has a bug.

    Every value is defined once, before it is read and in the scope where it is read. Each
    operand, result, body input and body output of a region op is in exactly one wire, and
    the ends of a wire agree in shape and dtype. A message shows the neighbouring ops.
    """
    _Scope(set()).check(program)


def show_ops(ops: Iterable[Op]) -> list[str]:
    """One line of text per op; a value has the same number in all of them."""
    writer = ProgramWriter()
    return [writer.op(op) for op in ops]


class _Scope:
    """The scope of one program; `made` holds the values defined so far in any scope."""

    def __init__(self, made: set[Value]) -> None:
        self.made = made
        self.visible: set[Value] = set()

    def check(self, program: Program) -> None:
        start = _Around(program, -1)
        self.define(
            (*program.inputs, *program.constants), "an input or constant", start
        )
        for index, op in enumerate(program.ops):
            around = _Around(program, index)
            for position, atom in enumerate(op.operands):
                self.read(atom, f"operand {position} of {op.kind}", around)
            _check_region(op, around)
            for body in op.bodies:
                _Scope(self.made).check(body)
            self.define(op.results, f"a result of {op.kind}", around)
        around = _Around(program, len(program.ops))
        for position, atom in enumerate(program.outputs):
            self.read(atom, f"output {position}", around)

    def define(self, values: Iterable[Value], what: str, around: _Around) -> None:
        for value in values:
            assert value not in self.made, f"{what}, {value}, is made twice{around}"
            self.made.add(value)
            self.visible.add(value)

    def read(self, atom: Atom, what: str, around: _Around) -> None:
        if isinstance(atom, Value):
            assert atom in self.visible, f"{what}, {atom}, is not made before{around}"


@dataclass(frozen=True, slots=True)
class _Around:
    """The ops around a position, with that one marked; formatted only when printed."""

    program: Program
    index: int

    def __str__(self) -> str:
        first = max(0, self.index - 2)
        shown = show_ops(self.program.ops[first : self.index + 3])
        lines = (
            f"{'->' if i == self.index else '  '} {line}"
            for i, line in enumerate(shown, first)
        )
        return ":\n" + "\n".join(lines)


def _check_region(op: Op, around: _Around) -> None:
    _check_once(op, [w.operand for w in op.wires], len(op.operands), "operand", around)
    _check_once(op, [w.result for w in op.wires], len(op.results), "result", around)
    for index, body in enumerate(op.bodies):
        inputs = [i for w in op.wires for b, i in w.inputs if b == index]
        _check_once(op, inputs, len(body.inputs), f"input of body {index}", around)
        outputs = [i for w in op.wires for b, i in w.outputs if b == index]
        _check_once(op, outputs, len(body.outputs), f"output of body {index}", around)
    for wire in op.wires:
        _check_wire(op, wire, around)


def _check_once(
    op: Op, named: Iterable[int | None], count: int, what: str, around: _Around
) -> None:
    """Assert that the wires name each of `count` positions once; without bodies, none."""
    wanted = list(range(count)) if op.bodies else []
    found = sorted(i for i in named if i is not None)
    assert found == wanted, (
        f"wires of {op.kind} name {what}s {found}, wanted {wanted}{around}"
    )


def _check_wire(op: Op, wire: Wire, around: _Around) -> None:
    """Assert that all ends agree; a stacked wire has one more leading dim outside."""
    inner = [op.bodies[b].inputs[i] for b, i in wire.inputs]
    inner += [op.bodies[b].outputs[i] for b, i in wire.outputs]
    outer = [] if wire.operand is None else [op.operands[wire.operand]]
    outer += [] if wire.result is None else [op.results[wire.result]]
    skip = 1 if wire.is_stacked else 0
    types = {(atom.shape, atom.dtype) for atom in inner}
    types |= {(atom.shape[skip:], atom.dtype) for atom in outer}
    assert len(types) <= 1, (
        f"ends of {wire} of {op.kind} differ: {sorted(types)}{around}"
    )
    assert all(len(a.shape) >= skip for a in outer), f"{wire} stacks a scalar{around}"
    if wire.is_stacked and "length" in op.params:
        length = show_param(op.params["length"])  # a number, or its text
        found = {str(a.shape[0]) for a in outer}
        assert found <= {length}, f"{wire} is of {found}, wanted {length}{around}"

"""A device program as a compiler sees it: loops of one turn are no loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshwright.ir import Atom, Op, Program, Value
from meshwright.simulate.unit import BARRIER


def inline(program: Program) -> tuple[Program, Mapping[Op, Op]]:
    """The program with the bodies of scans of one turn, and of remats, in their place.

    The second result says, for each op that had to be made anew, which one it was.
    """
    pass_ = _Inline()
    return pass_.program(program), pass_.origins


class _Inline:
    def __init__(self) -> None:
        self.origins: dict[Op, Op] = {}
        self.renamed: dict[Value, Atom] = {}

    def program(self, program: Program) -> Program:
        """The program itself where there is nothing to inline."""
        if not self.renamed and not any(op.bodies for op in program.ops):
            return program
        ops = [new for op in program.ops for new in self.ops(op)]
        outputs = tuple(map(self.atom, program.outputs))
        if all(a is b for a, b in zip(ops, program.ops, strict=False)) and (
            len(ops) == len(program.ops)
        ):
            return program
        constants = dict(program.constants)
        for op in program.ops:
            if _is_single(op):
                constants.update(op.bodies[0].constants)
        return Program(program.inputs, tuple(ops), outputs, constants)

    def atom(self, atom: Atom) -> Atom:
        """What an atom is now called."""
        return self.renamed.get(atom, atom) if isinstance(atom, Value) else atom

    def ops(self, op: Op) -> list[Op]:
        """What stands in an op's place."""
        operands = tuple(map(self.atom, op.operands))
        if _is_single(op):
            return self._single(op, operands)
        bodies = tuple(map(self.program, op.bodies))
        same = all(a is b for a, b in zip(bodies, op.bodies, strict=True))
        if same and all(a is b for a, b in zip(operands, op.operands, strict=True)):
            return [op]
        made = replace(op, operands=operands, bodies=bodies)
        self.origins[made] = self.origins.get(op, op)
        return [made]

    def _single(self, op: Op, operands: tuple[Atom, ...]) -> list[Op]:
        """The body's ops, between reshapes that drop and add the dim of the turns."""
        (body,) = op.bodies
        made: list[Op] = []
        for wire in op.wires:
            for _, position in wire.inputs:
                assert wire.operand is not None, "a body's input has an operand"
                inside, outside = body.inputs[position], operands[wire.operand]
                if wire.is_stacked:
                    made.append(_reshape(op, outside, inside))
                elif op.params.get("barrier") and isinstance(outside, Value):
                    made.append(Op(BARRIER, (outside,), (inside,), source=op.source))
                else:
                    self.renamed[inside] = outside
        for inner in body.ops:
            made += self.ops(inner)
        for wire in op.wires:
            for _, position in wire.outputs:
                if wire.result is None:
                    continue
                inside, result = (
                    self.atom(body.outputs[position]),
                    op.results[wire.result],
                )
                if wire.is_stacked:
                    made.append(_reshape(op, inside, result))
                else:
                    self.renamed[result] = inside
        return made


def _is_single(op: Op) -> bool:
    """Whether an op runs its only body once: what is made again is made in its place."""
    return op.kind == "remat" or (op.kind == "scan" and op.params.get("length") == 1)


def _reshape(op: Op, operand: Atom, result: Value) -> Op:
    """The same elements in another shape; a literal is spread."""
    kind = "reshape" if isinstance(operand, Value) else "broadcast_in_dim"
    return Op(kind, (operand,), (result,), source=op.source)

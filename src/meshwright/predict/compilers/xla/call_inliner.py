"""A device program as a compiler sees it.

Loops of one turn are no loops, of a choice by platform its own branch is all there is, and
to add dims of one element may be a new shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshwright.predict.compilers.rules import PLAIN, Rules
from meshwright.predict.compilers.xla.fusion import BARRIER
from meshwright.program.ir import Atom, Op, Program, Value

_REPEATS = "broadcast_in_dim"


def inline(program: Program, rules: Rules = PLAIN) -> tuple[Program, Mapping[Op, Op]]:
    """The program with what runs once in the place of the region that it stands in.

    That are scans of one turn, remats, and the branch of the compiler's own platform.
    The second result says, for each op that had to be made anew, which one it was.
    """
    pass_ = _Inline(rules, frozenset(program.outputs))
    return pass_.program(program), pass_.origins


class _Inline:
    def __init__(self, rules: Rules, outputs: frozenset[Atom]) -> None:
        self.rules = rules
        self.outputs = outputs
        self.origins: dict[Op, Op] = {}
        self.renamed: dict[Value, Atom] = {}

    def program(self, program: Program) -> Program:
        """The program itself where there is nothing to inline."""
        if not self.renamed and not any(op.bodies for op in program.ops):
            return self._reshaped(program)
        ops = [new for op in program.ops for new in self.ops(op)]
        outputs = tuple(map(self.atom, program.outputs))
        if all(a is b for a, b in zip(ops, program.ops, strict=False)) and (
            len(ops) == len(program.ops)
        ):
            return program
        constants = dict(program.constants)
        for op in program.ops:
            number = self.in_place(op)
            if number is not None:
                constants.update(op.bodies[number].constants)
        return Program(program.inputs, tuple(ops), outputs, constants)

    def _reshaped(self, program: Program) -> Program:
        """A program without regions, of which there is little to change."""
        repeats = [op for op in program.ops if op.kind == _REPEATS]
        changed = {
            op: self._reshape_of(op, op.operands)
            for op in repeats
            if self._is_reshape(op, op.operands)
        }
        if not changed:
            return program
        ops = tuple([changed.get(op, op) for op in program.ops])
        return replace(program, ops=ops)

    def atom(self, atom: Atom) -> Atom:
        """What an atom is now called."""
        return self.renamed.get(atom, atom) if isinstance(atom, Value) else atom

    def ops(self, op: Op) -> list[Op]:
        """What stands in an op's place."""
        operands = tuple(map(self.atom, op.operands))
        number = self.in_place(op)
        if number is not None:
            return self._opened(op, number, operands)
        if op.kind == _REPEATS and self._is_reshape(op, operands):
            return [self._reshape_of(op, operands)]
        bodies = tuple(map(self.program, op.bodies))
        same = all(a is b for a, b in zip(bodies, op.bodies, strict=True))
        if same and all(a is b for a, b in zip(operands, op.operands, strict=True)):
            return [op]
        made = replace(op, operands=operands, bodies=bodies)
        self.origins[made] = self.origins.get(op, op)
        return [made]

    def in_place(self, op: Op) -> int | None:
        """Which body stands in an op's place, since it runs once and no other does."""
        if op.kind == "remat":
            return None if self.rules.keeps_remats else 0
        if op.kind == "scan" and op.params.get("length") == 1:
            return 0
        platforms: Any = op.params.get("platforms") if op.kind == "cond" else None
        if platforms is None:
            return None
        own = (
            n for n, p in enumerate(platforms) if p is None or self.rules.platform in p
        )
        return next(own, None)

    def _is_reshape(self, op: Op, operands: Sequence[Atom]) -> bool:
        """Whether an op that repeats an array does so once, along dims of one element.

        What leaves the program is an array of its own all the same.
        """
        if not self.rules.reshapes:
            return False
        (operand,), (result,) = operands, op.results
        if not isinstance(operand, Value) or result in self.outputs:
            return False
        return math.prod(operand.shape) == math.prod(result.shape)

    def _reshape_of(self, op: Op, operands: tuple[Atom, ...]) -> Op:
        made = replace(op, kind="reshape", operands=operands)
        self.origins[made] = self.origins.get(op, op)
        return made

    def _opened(self, op: Op, number: int, operands: tuple[Atom, ...]) -> list[Op]:
        """A body's ops, between reshapes that drop and add the dim of a loop's turns."""
        body = op.bodies[number]
        made: list[Op] = []
        for wire in op.wires:
            for position in _of(number, wire.inputs):
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
            for position in _of(number, wire.outputs):
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


def _of(number: int, ends: Sequence[tuple[int, int]]) -> list[int]:
    """Those positions of a wire's ends that lie in one body."""
    return [position for body, position in ends if body == number]


def _reshape(op: Op, operand: Atom, result: Value) -> Op:
    """The same elements in another shape; a literal is spread."""
    kind = "reshape" if isinstance(operand, Value) else "broadcast_in_dim"
    return Op(kind, (operand,), (result,), source=op.source)

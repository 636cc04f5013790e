"""Unrolling of scans into straight-line ops, for formats without loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshwright.errors import DeployError
from meshwright.machine import Mesh
from meshwright.program.ir import Atom, Literal, Op, Program, Value, Wire
from meshwright.program.rules.builder import Builder

MOST_OPS = 20_000
"""Most ops of an unrolled program; a converter takes minutes for more."""


def unroll_loops(program: Program, target: str) -> Program:
    """The program with scans unrolled, remats inlined, and branches selected.

    All branches of a conditional are computed, and one result is selected. The program
    computes the same. `DeployError` names a `while` loop, whose number of iterations is
    unknown.

    target: the format's name, for messages.
    """
    unroller = _Unroller(target, dict(program.constants))
    outputs = unroller.inline(program, program.inputs)
    return Program(
        program.inputs, tuple(unroller.builder.ops), tuple(outputs), unroller.constants
    )


@dataclass
class _Unroller:
    """The ops of the unrolled program so far.

    constants: arrays by value. An element of a stacked constant becomes a constant,
        too.
    """

    target: str
    constants: dict[Value, Any]
    builder: Builder = field(default_factory=lambda: Builder(Mesh({"device": 1})))

    def inline(self, program: Program, inputs: Sequence[Atom]) -> list[Atom]:
        """Append the ops of a program on other inputs; return its outputs."""
        env: dict[Atom, Atom] = dict(zip(program.inputs, inputs, strict=True))
        self.constants.update(program.constants)

        def read(atom: Atom) -> Atom:
            return atom if isinstance(atom, Literal) else env.get(atom, atom)

        for op in program.ops:
            operands = [read(a) for a in op.operands]
            self.builder.source = op.source
            env.update(zip(op.results, self.op(op, operands), strict=True))
        return [read(a) for a in program.outputs]

    def op(self, op: Op, operands: Sequence[Atom]) -> Sequence[Atom]:
        if not op.bodies:
            if len(self.builder.ops) > MOST_OPS:
                raise DeployError(
                    f"the loop at {op.source or 'an unknown line'} unrolls to more than "
                    f"{MOST_OPS} ops, and {self.target} has no loops: use iree-cpu or "
                    "onnx, which keep them"
                )
            return self.builder.apply(op, operands, [r.shape for r in op.results])
        if op.kind == "remat":
            return self._results(op, self._body(op, 0, op.wires, operands))
        if op.kind == "scan":
            return self._scan(op, operands)
        if op.kind == "cond":
            return self._cond(op, operands)
        raise DeployError(
            f"{self.target} cannot express the loop `{op.kind}` at "
            f"{op.source or 'an unknown line'}, whose number of iterations depends on "
            "values: use lax.scan or a fori_loop of constant bounds, which are unrolled, "
            "or the target iree-cpu or onnx"
        )

    def _body(
        self, op: Op, body: int, wires: Iterable[Wire], given: Sequence[Atom]
    ) -> list[Atom]:
        """Append the ops of one body of a loop or branch; return its outputs.

        given: for each operand of the op, the value that the body reads in this
            iteration.
        """
        inputs: list[Atom] = [*op.bodies[body].inputs]
        for wire in wires:
            for b, position in wire.inputs:
                if b == body and wire.operand is not None:
                    inputs[position] = given[wire.operand]
        return self.inline(op.bodies[body], inputs)

    @staticmethod
    def _results(op: Op, outputs: Sequence[Atom], body: int = 0) -> list[Atom]:
        found: list[Atom] = [*op.results]
        for wire in op.wires:
            if wire.result is not None:
                found[wire.result] = outputs[dict(wire.outputs)[body]]
        return found

    def _cond(self, op: Op, operands: Sequence[Atom]) -> list[Atom]:
        which = next(w for w in op.wires if not w.inputs and not w.outputs)
        assert which.operand is not None, "a branch index is an operand"
        index = operands[which.operand]
        chosen: list[Atom] | None = None
        for body in range(len(op.bodies)):
            found = self._results(op, self._body(op, body, op.wires, operands), body)
            if chosen is None:
                chosen = found
                continue
            is_here = self.builder.compare("ge", index, body)
            chosen = [
                self.builder.select(is_here, old, new)
                for old, new in zip(chosen, found, strict=True)
            ]
        assert chosen is not None, "a conditional has a branch"
        return chosen

    def _scan(self, op: Op, operands: Sequence[Atom]) -> list[Atom]:
        params: Any = op.params
        given = list(operands)
        sliced = [w.operand for w in op.wires if w.is_stacked and w.operand is not None]
        carries = [w for w in op.wires if w.operand is not None and w.outputs]
        stacks = [w for w in op.wires if w.is_stacked and w.outputs]
        parts: dict[int, list[Atom]] = {i: [] for i in range(len(stacks))}
        order = range(params["length"])[:: -1 if params["reverse"] else 1]
        for i in order:
            for position in sliced:
                given[position] = self._element(operands[position], i)
            outputs = self._body(op, 0, op.wires, given)
            for number, wire in enumerate(stacks):
                parts[number].append(outputs[wire.outputs[0][1]])
            for wire in carries:
                assert wire.operand is not None, "a carry has an operand"
                given[wire.operand] = outputs[wire.outputs[0][1]]
        results: list[Atom] = [*op.results]
        for wire in carries:
            if wire.operand is not None and wire.result is not None:
                results[wire.result] = given[wire.operand]
        for number, wire in enumerate(stacks):
            if wire.result is not None:
                made = parts[number][:: -1 if params["reverse"] else 1]
                results[wire.result] = self._stacked(op.results[wire.result], made)
        return results

    def _element(self, atom: Atom, i: int) -> Atom:
        """Element `i` along the first dim; a constant if the array is a constant."""
        known = self.constants.get(atom) if isinstance(atom, Value) else None
        if known is not None:
            value = Value(atom.shape[1:], atom.dtype)
            self.constants[value] = np.asarray(known)[i]
            return value
        part = self.builder.slice(atom, 0, i, i + 1)
        return self.builder.reshape(part, atom.shape[1:])

    def _stacked(self, like: Value, parts: Sequence[Atom]) -> Atom:
        if not parts:
            return self.builder.full(like.shape, 0, like.dtype)
        one = [
            self.builder.reshape(
                p if isinstance(p, Value) else self.builder.broadcast(p, p.shape, ()),
                (1, *p.shape),
            )
            for p in parts
        ]
        return one[0] if len(one) == 1 else self.builder.concatenate(one, 0)

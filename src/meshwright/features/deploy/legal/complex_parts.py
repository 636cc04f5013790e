"""Complex arrays as pairs of real arrays, for targets without complex numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meshwright.features.deploy.legal.complex_rules import (
    REAL,
    RULES,
    Parts,
    is_complex,
)
from meshwright.features.deploy.legal.rewrite import splice
from meshwright.features.deploy.source.inexpressible import Inexpressible
from meshwright.program.ir import Atom, Literal, Op, Program, Value, Wire


def split_complex(program: Program) -> Program:
    """The program with two real arrays for each complex one.

    Complex inputs and outputs of the program keep their dtype. Raises `Inexpressible` for
    an op that has no form on pairs.
    """
    if not any(
        is_complex(a) for op in program.walk() for a in (*op.operands, *op.results)
    ):
        return program
    splitter = _Splitter({}, [], dict(program.constants))
    for value in program.inputs:
        if is_complex(value):
            parts = tuple(Value(value.shape, REAL[value.dtype]) for _ in range(2))
            for kind, part in zip(("real", "imag"), parts, strict=True):
                splitter.ops.append(Op(kind, (value,), (part,)))
            splitter.env[value] = parts
    splitter.run(program)
    outputs: list[Atom] = []
    for atom in program.outputs:
        if is_complex(atom):
            made = Value(atom.shape, atom.dtype)
            splitter.ops.append(Op("complex", splitter.parts(atom), (made,)))
            outputs.append(made)
        else:
            outputs.append(*splitter.parts(atom))
    return Program(
        program.inputs, tuple(splitter.ops), tuple(outputs), splitter.constants
    )


class _Splitter:
    """The ops of the split program so far.

    env: by atom, the atoms of its parts; one for an array that is not complex.
    """

    def __init__(
        self,
        env: dict[Atom, tuple[Atom, ...]],
        ops: list[Op],
        constants: dict[Value, Any],
    ) -> None:
        self.env, self.ops, self.constants = env, ops, constants

    def parts(self, atom: Atom) -> tuple[Atom, ...]:
        """The atoms that stand for an atom: two if it is complex."""
        if atom in self.env:
            return self.env[atom]
        if not is_complex(atom):
            return (atom,)
        dtype = REAL[atom.dtype]
        if isinstance(atom, Literal):
            content: Any = atom.value
            number = complex(content)
            return Literal(number.real, dtype), Literal(number.imag, dtype)
        made = tuple(Value(atom.shape, dtype) for _ in range(2))
        if atom in self.constants:
            array: Any = np.asarray(self.constants.pop(atom))
            self.constants[made[0]] = np.ascontiguousarray(array.real)
            self.constants[made[1]] = np.ascontiguousarray(array.imag)
        self.env[atom] = made
        return made

    def run(self, program: Program) -> None:
        """Append the split ops of a program."""
        for op in program.ops:
            if not any(map(is_complex, (*op.operands, *op.results))) and not op.bodies:
                operands = tuple(self.parts(a)[0] for a in op.operands)
                self.ops.append(replace(op, operands=operands))
            elif op.bodies:
                self.ops.append(self._region(op))
            else:
                self._split(op)

    def _split(self, op: Op) -> None:
        function = RULES.get(op.kind)
        if function is None:
            raise Inexpressible(
                "it has no form on pairs of real and imaginary parts", op
            )
        grouped = [self.parts(a) for a in op.operands]

        def computed(*arrays: Any) -> Any:
            left = iter(arrays)
            given = [
                Parts(next(left), next(left)) if len(g) == 2 else next(left)
                for g in grouped
            ]
            return function(op, *given)

        flat = [atom for group in grouped for atom in group]
        try:
            made = iter(splice(self.ops, self.constants, op, computed, flat))
        except Inexpressible as failure:
            raise Inexpressible(str(failure), op) from None
        for result in op.results:
            count = 2 if is_complex(result) else 1
            self.env[result] = tuple(next(made) for _ in range(count))

    def _region(self, op: Op) -> Op:
        """A loop or branch with two wires for each wire of a complex array."""
        operands, results = _positions(op.operands), _positions(op.results)
        inputs = [_positions(body.inputs) for body in op.bodies]
        outputs = [_positions(body.outputs) for body in op.bodies]

        def ends(pairs: Sequence[tuple[int, int]], places: Any, part: int) -> Any:
            return tuple((b, places[b][i][part]) for b, i in pairs)

        wires: list[Wire] = []
        for wire in op.wires:
            count = len(_places_of(wire, operands, results, inputs, outputs))
            wires += [
                Wire(
                    None if wire.operand is None else operands[wire.operand][p],
                    ends(wire.inputs, inputs, p),
                    ends(wire.outputs, outputs, p),
                    None if wire.result is None else results[wire.result][p],
                    wire.is_stacked,
                )
                for p in range(count)
            ]
        made: list[Any] = [p for r in op.results for p in self.parts(r)]
        return replace(
            op,
            operands=tuple(p for a in op.operands for p in self.parts(a)),
            results=tuple(made),
            bodies=tuple(self._body(body) for body in op.bodies),
            wires=tuple(wires),
        )

    def _body(self, body: Program) -> Program:
        inner = _Splitter(self.env, [], dict(body.constants))
        inputs: Any = tuple(p for v in body.inputs for p in inner.parts(v))
        inner.run(body)
        outputs = tuple(p for a in body.outputs for p in inner.parts(a))
        return Program(inputs, tuple(inner.ops), outputs, inner.constants)


def _positions(atoms: Sequence[Atom]) -> list[tuple[int, ...]]:
    """Positions of each atom's parts among the parts of all atoms."""
    found: list[tuple[int, ...]] = []
    start = 0
    for atom in atoms:
        count = 2 if is_complex(atom) else 1
        found.append(tuple(range(start, start + count)))
        start += count
    return found


def _places_of(
    wire: Wire, operands: Any, results: Any, inputs: Any, outputs: Any
) -> tuple[int, ...]:
    """The positions of the parts at any end of a wire."""
    if wire.operand is not None:
        return operands[wire.operand]
    if wire.result is not None:
        return results[wire.result]
    body, position = (*wire.inputs, *wire.outputs)[0]
    return (inputs if wire.inputs else outputs)[body][position]

"""Makes one of ops that compute the same of the same values, as compilers do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import count

import numpy as np

from meshwright.program.ir.program import Atom, Literal, Op, Program, Value


def merge(
    program: Program, heavy: Collection[str], drawn: Collection[str] = ()
) -> Program:
    """The program without heavy ops whose results an earlier op has, in its bodies too.

    heavy: kinds of op that take time of their own. Others stay, one for each reader:
        compilers compute them where they are read. Those that only lead to a merged one
        are dead then.
    drawn: kinds whose results differ each time.
    Law: inputs and outputs stay as they are; the merged program computes the same. Ops
    with effects or bodies stay, and so do those whose parameters cannot be compared.
    """
    return _Merger(heavy, drawn).body(program)


class _Merger:
    """Numbers values so that those with one number are equal whatever the inputs.

    known: by what an op does to numbered operands, its results. instead: by value that
    an earlier op has made, that op's.
    """

    def __init__(self, heavy: Collection[str], drawn: Collection[str]) -> None:
        self.heavy = heavy
        self.drawn = drawn
        self.fresh = count()
        self.numbers: dict[Value, int] = {}
        self.known: dict[object, tuple[Value, ...]] = {}
        self.instead: dict[Value, Value] = {}

    def body(self, program: Program) -> Program:
        """The program, merged."""
        ops = [kept for op in program.ops if (kept := self._op(op)) is not None]
        outputs = tuple(map(self._atom, program.outputs))
        if len(ops) == len(program.ops) and all(map(_is, ops, program.ops)):
            return program
        return replace(program, ops=tuple(ops), outputs=outputs)

    def _op(self, op: Op) -> Op | None:
        """An op on what its operands are now; None where its results are known."""
        operands = tuple(map(self._atom, op.operands))
        bodies = tuple(merge(body, self.heavy, self.drawn) for body in op.bodies)
        if not (
            all(map(_is, operands, op.operands)) and all(map(_is, bodies, op.bodies))
        ):
            op = replace(op, operands=operands, bodies=bodies)
        key = self._key(op)
        if key is None:
            return op
        known = self.known.setdefault(key, op.results)
        if known is op.results:
            return op
        if op.kind not in self.heavy:
            for mine, theirs in zip(op.results, known, strict=True):
                self.numbers[mine] = self._number(theirs)
            return op
        self.instead.update(zip(op.results, known, strict=True))
        return None

    def _key(self, op: Op) -> object:
        """Equal for ops with equal results; None where nobody can tell."""
        if op.bodies or op.has_effect or op.kind in self.drawn or not op.results:
            return None
        types = tuple((r.shape, r.dtype) for r in op.results)
        operands = tuple(map(self._operand, op.operands))
        params = tuple((name, _exact(op.params[name])) for name in sorted(op.params))
        key = op.kind, op.primitive, operands, types, params
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _atom(self, atom: Atom) -> Atom:
        return self.instead.get(atom, atom) if isinstance(atom, Value) else atom

    def _operand(self, atom: Atom) -> object:
        if isinstance(atom, Literal):
            return atom.dtype, _exact(atom.value)
        return self._number(atom)

    def _number(self, value: Value) -> int:
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = next(self.fresh)
        return number


def _exact(value: object) -> object:
    """What equals only that of the same type and, for numbers, of the same bits.

    0.0 equals -0.0 and True equals 1 as they are, no NaN equals itself, and a NaN has a
    sign that its name does not tell.
    """
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    is_number = isinstance(value, float | complex | np.generic)
    return type(value), np.asarray(value).tobytes() if is_number else value


def _is(one: object, other: object) -> bool:
    return one is other

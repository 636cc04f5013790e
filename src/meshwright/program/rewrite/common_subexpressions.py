"""Common subexpression elimination (XLA: `HloCSE`), of expensive ops only."""

from dataclasses import replace
from itertools import count
from operator import is_

import numpy as np

from meshwright.program.ir import Atom, Literal, Op, Program, Value
from meshwright.program.ops import Trait, has_trait


def eliminate_common_subexpressions(program: Program) -> Program:
    """The program without expensive ops that repeat an earlier op, in bodies too.

    Only ops with the trait `EXPENSIVE` are removed. Cheap repeated ops stay, since
    compilers compute them inside each fusion that reads them. Some ops have no reader
    afterwards; dead code elimination removes these. Ops with effects or bodies stay,
    and so do ops whose parameters cannot be compared. Law: inputs and outputs stay as
    they are, and the result computes the same.
    """
    return _Eliminator().body(program)


class _Eliminator:
    """Value numbering: values with the same number are equal whatever the inputs are.

    known: results of earlier ops, by a key of what the op does to numbered operands.
    replacements: for each result of a removed op, the equal result of an earlier op.
    """

    def __init__(self) -> None:
        self.fresh = count()
        self.numbers: dict[Value, int] = {}
        self.known: dict[object, tuple[Value, ...]] = {}
        self.replacements: dict[Value, Value] = {}

    def body(self, program: Program) -> Program:
        """The program without expensive ops that repeat an earlier one."""
        ops = [kept for op in program.ops if (kept := self._op(op)) is not None]
        outputs = tuple(map(self._atom, program.outputs))
        if len(ops) == len(program.ops) and all(map(is_, ops, program.ops)):
            return program
        return replace(program, ops=tuple(ops), outputs=outputs)

    def _op(self, op: Op) -> Op | None:
        """The op, with replaced operands.

        `None` if an earlier op has the same results.
        """
        operands = tuple(map(self._atom, op.operands))
        bodies = tuple(map(eliminate_common_subexpressions, op.bodies))
        if not (
            all(map(is_, operands, op.operands)) and all(map(is_, bodies, op.bodies))
        ):
            op = replace(op, operands=operands, bodies=bodies)
        key = self._key(op)
        if key is None:
            return op
        known = self.known.setdefault(key, op.results)
        if known is op.results:
            return op
        if not has_trait(op.kind, Trait.EXPENSIVE):
            for mine, theirs in zip(op.results, known, strict=True):
                self.numbers[mine] = self._number(theirs)
            return op
        self.replacements.update(zip(op.results, known, strict=True))
        return None

    def _key(self, op: Op) -> object:
        """A key that only ops with equal results share.

        `None` if the op has no such key.
        """
        if op.bodies or op.has_effect or not op.results:
            return None
        if has_trait(op.kind, Trait.DRAWS_FROM_STATE):
            return None
        types = tuple((r.shape, r.dtype) for r in op.results)
        operands = tuple(map(self._operand, op.operands))
        params = tuple((name, exact_key(op.params[name])) for name in sorted(op.params))
        key = op.kind, op.primitive, operands, types, params
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _atom(self, atom: Atom) -> Atom:
        return self.replacements.get(atom, atom) if isinstance(atom, Value) else atom

    def _operand(self, atom: Atom) -> object:
        if isinstance(atom, Literal):
            return atom.dtype, exact_key(atom.value)
        return self._number(atom)

    def _number(self, value: Value) -> int:
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = next(self.fresh)
        return number


def exact_key(value: object) -> object:
    """A key that equals another only if type and, for numbers, bits are the same.

    Python's own equality is too coarse (0.0 == -0.0, True == 1) and for NaNs too fine.
    """
    if isinstance(value, tuple):
        return tuple(map(exact_key, value))
    is_number = isinstance(value, float | complex | np.generic)
    return type(value), np.asarray(value).tobytes() if is_number else value

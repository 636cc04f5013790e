"""Patterns of ops, written as JAX functions and found in programs.

A pattern is traced with the shape of a candidate, so that its ops have the candidate's
parameters, and it follows JAX's own definitions from release to release.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from meshwright.features.deploy.legal.folding import fold_constants
from meshwright.program.capture import capture
from meshwright.program.ir import Atom, Literal, Op, Program, Value
from meshwright.program.ir.program import show_param

_TRANSPARENT = ("copy", "copy_p", "name", "stop_gradient")
_COMMUTATIVE = ("add", "max", "min", "mul")


@dataclass(frozen=True)
class Index:
    """Makers and readers of a program's values, and its constants."""

    program: Program
    makers: dict[Atom, Op] = field(default_factory=dict)
    readers: dict[Atom, list[Op | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op in self.program.ops:
            self.makers.update(dict.fromkeys(op.results, op))
            for atom in op.operands:
                self.readers.setdefault(atom, []).append(op)
        for atom in self.program.outputs:
            self.readers.setdefault(atom, []).append(None)

    def source(self, atom: Atom) -> Atom:
        """The atom before ops that change nothing."""
        while (op := self.makers.get(atom)) is not None and op.kind in _TRANSPARENT:
            atom = op.operands[0]
        return atom

    def maker(self, atom: Atom, *kinds: str) -> Op | None:
        """The op that computes an atom, if it is of one of the kinds."""
        op = self.makers.get(self.source(atom))
        return op if op is not None and op.kind in kinds else None

    def number(self, atom: Atom) -> float | None:
        """The number that all elements of a constant are; `None` for other values."""
        content: Any = atom.value if isinstance(atom, Literal) else None
        if isinstance(atom, Value):
            content = self.program.constants.get(atom)
        if content is None or not np.size(content):
            return None
        array = np.asarray(content)
        first = array.reshape(-1)[0]
        is_number = array.dtype.kind in "fiu" and bool((array == first).all())
        return float(first) if is_number else None

    def is_read_once(self, atom: Atom) -> bool:
        """Whether one op reads the value, and the program does not return it."""
        return len(self.readers.get(atom, ())) == 1


@lru_cache(maxsize=256)
def traced(
    function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], dtype: str
) -> Index:
    """The program of a pattern for inputs of some shapes."""
    types = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return Index(fold_constants(capture(function, types).program))


@dataclass
class Match:
    """A pattern and a program, compared from an output backward.

    inputs: by input of the pattern, the program's atom. ops: the matched ops.
    """

    pattern: Index
    program: Index
    inputs: dict[Atom, Atom] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)

    def found(self, root: Op) -> bool:
        """Whether the program's op computes the pattern's output.

        All values in between are read by matched ops only.
        """
        (output,) = self.pattern.program.outputs
        if not self._equal(output, root.results[0]):
            return False
        own = {id(op) for op in self.ops}
        inner = [v for op in self.ops if op is not root for v in op.results]
        return all(
            reader is not None and (id(reader) in own or reader.kind in _TRANSPARENT)
            for value in inner
            for reader in self.program.readers.get(value, ())
        )

    def _equal(self, wanted: Atom, given: Atom) -> bool:
        wanted, given = self.pattern.source(wanted), self.program.source(given)
        if wanted in self.pattern.program.inputs:
            known = self.inputs.setdefault(wanted, given)
            is_same = known is given or known == given
            return is_same and (wanted.shape, wanted.dtype) == (
                given.shape,
                given.dtype,
            )
        number = self.pattern.number(wanted)
        if number is not None:
            return number == self.program.number(given)
        pattern, op = self.pattern.makers.get(wanted), self.program.makers.get(given)
        if pattern is None or op is None or pattern.kind != op.kind:
            return False
        if _params(pattern) != _params(op):
            return False
        return self._operands(pattern, op)

    def _operands(self, pattern: Op, op: Op) -> bool:
        orders: list[Sequence[Atom]] = [op.operands]
        if op.kind in _COMMUTATIVE:
            orders.append(op.operands[::-1])
        before = dict(self.inputs), list(self.ops)
        for operands in orders:
            pairs = zip(pattern.operands, operands, strict=True)
            if all(self._equal(a, b) for a, b in pairs):
                self.ops.append(op)
                return True
            self.inputs, self.ops = dict(before[0]), list(before[1])
        return False


def _params(op: Op) -> dict[str, str]:
    return {name: show_param(_plain(value)) for name, value in op.params.items()}


def _plain(value: Any) -> Any:
    """The parameter with Python's integers for NumPy's."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return int(value) if isinstance(value, np.integer) else value

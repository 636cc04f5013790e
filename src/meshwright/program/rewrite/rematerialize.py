"""Ops that make values once more, late, of what is kept until then."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from meshwright.program.ir.program import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait


class Again:
    """What has been made again so far, of the ops of one program or body.

    made: by value the new one. What is kept, what no op makes, and what ops with effects
    and loops make is fetched instead; what is made again of loops is made turn by turn, in
    other loops.
    """

    def __init__(self, ops: Sequence[Op], keep: Collection[Value]) -> None:
        self.made: dict[Atom, Value] = {}
        self.fetched: dict[Atom, Atom] = {}
        self._keep = frozenset(keep)
        self._maker = {
            result: op
            for op in ops
            if not op.has_effect and not has_trait(op.kind, Trait.LOOP)
            for result in op.results
            if result not in self._keep
        }

    def can_make(self, atom: Atom) -> bool:
        """Whether a value is one that is made again."""
        return atom in self._maker

    def ops_for(self, atom: Atom) -> Iterator[Op]:
        """The ops that make a value again, those that its operands need before it."""
        waiting = [atom]
        while waiting:
            atom = waiting[-1]
            op = self._maker.get(atom)  # pyright: ignore[reportArgumentType]
            if op is None or atom in self.made:
                waiting.pop()
                continue
            needed = [o for o in op.operands if self._is_missing(o)]
            if needed:
                waiting += needed
                continue
            waiting.pop()
            for operand in op.operands:
                if isinstance(operand, Value) and operand not in self.made:
                    yield from self._fetch(operand)
            results = tuple(Value(r.shape, r.dtype) for r in op.results)
            operands = tuple(map(self._operand, op.operands))
            for old, new in zip(op.results, results, strict=True):
                if old not in self._keep:
                    self.made[old] = new
            bodies = tuple(map(_copied, op.bodies))
            yield replace(op, operands=operands, results=results, bodies=bodies)

    def fetch(self, value: Value) -> Iterator[Op]:
        """Ops before a value that is not made again, which set what it is `fetched` as.

        Here a barrier, since a compiler would otherwise see that all was there before.
        """
        fenced = self.fetched[value] = Value(value.shape, value.dtype)
        yield Op("optimization_barrier", (value,), (fenced,))

    def _fetch(self, value: Value) -> Iterator[Op]:
        if value not in self.fetched:
            yield from self.fetch(value)

    def _is_missing(self, atom: Atom) -> bool:
        return atom in self._maker and atom not in self.made

    def _operand(self, atom: Atom) -> Atom:
        return self.made.get(atom) or self.fetched.get(atom, atom)


def _copied(program: Program) -> Program:
    """The same over values of its own, since each value is made once."""
    new: dict[Atom, Value] = {}

    def fresh(values: Sequence[Value]) -> tuple[Value, ...]:
        made = tuple(Value(v.shape, v.dtype) for v in values)
        new.update(zip(values, made, strict=True))
        return made

    inputs = fresh(program.inputs)
    constants = dict(
        zip(fresh([*program.constants]), program.constants.values(), strict=True)
    )
    ops = tuple(
        replace(
            op,
            operands=tuple(new.get(a, a) for a in op.operands),
            results=fresh(op.results),
            bodies=tuple(map(_copied, op.bodies)),
        )
        for op in program.ops
    )
    return Program(
        inputs, ops, tuple(new.get(a, a) for a in program.outputs), constants
    )

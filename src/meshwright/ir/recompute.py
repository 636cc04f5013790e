"""Programs that compute values again, late, rather than keep them.

A training step makes values on its way forward and reads them on its way back; the turn
is where most of them wait. What is not kept is made again just before its first reader
behind the turn, from what is kept; a barrier stands before it, since a compiler would
otherwise see that it was there before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from meshwright.ir.program import Atom, Op, Program, Value, num_bytes
from meshwright.ir.prune import prune


def turn_of(program: Program) -> int:
    """How many ops run before most bytes wait; inputs do not count, they always do."""
    end = len(program.ops)
    last: dict[Atom, int] = dict.fromkeys(program.outputs, end)
    for index, op in enumerate(program.ops):
        for operand in op.operands:
            last[operand] = max(index, last.get(operand, 0))
    change = [0] * (end + 2)
    for index, op in enumerate(program.ops):
        for result in op.results:
            change[index] += num_bytes(result)
            change[last.get(result, index) + 1] -= num_bytes(result)
    most = alive = turn = 0
    for index in range(end):
        alive += change[index]
        if alive > most:
            most, turn = alive, index + 1
    return turn


def waiting(program: Program, turn: int) -> tuple[Value, ...]:
    """The values made before the turn that are read behind it, in order."""
    read = {a for op in program.ops[turn:] for a in op.operands}
    return tuple(r for op in program.ops[:turn] for r in op.results if r in read)


def recompute(program: Program, keep: Collection[Value], turn: int) -> Program:
    """The program that makes again what waits at the turn and is not to be kept.

    Ops with effects run once: their results are kept, too. Law: it computes the same.
    """
    ops = [*program.ops[:turn]]
    again = _Again(program.ops[:turn], keep)
    for op in program.ops[turn:]:
        operands: list[Atom] = []
        for operand in op.operands:
            ops += again.ops_for(operand)
            operands.append(again.made.get(operand, operand))
        changed = operands != [*op.operands]
        ops.append(replace(op, operands=tuple(operands)) if changed else op)
    return prune(replace(program, ops=tuple(ops)))


class _Again:
    """What has been made again so far: by value, the new one."""

    def __init__(self, ops: Sequence[Op], keep: Collection[Value]) -> None:
        self.made: dict[Atom, Value] = {}
        self._fenced: dict[Atom, Value] = {}
        self._keep = frozenset(keep)
        self._maker = {r: op for op in ops for r in op.results if not op.has_effect}

    def ops_for(self, atom: Atom) -> Iterator[Op]:
        """The ops that make a value again, those that its operands need before it."""
        waiting = [atom]
        while waiting:
            atom = waiting[-1]
            op = self._maker_of(atom)
            if op is None or atom in self.made:
                waiting.pop()
                continue
            needed = [o for o in op.operands if self._is_missing(o)]
            if needed:
                waiting += needed
                continue
            waiting.pop()
            yield from self._fences(op)
            results = tuple(Value(r.shape, r.dtype) for r in op.results)
            operands = tuple(map(self._operand, op.operands))
            self.made |= {
                old: new
                for old, new in zip(op.results, results, strict=True)
                if old not in self._keep
            }
            yield replace(op, operands=operands, results=results)

    def _maker_of(self, atom: Atom) -> Op | None:
        if not isinstance(atom, Value) or atom in self._keep:
            return None
        return self._maker.get(atom)

    def _is_missing(self, atom: Atom) -> bool:
        return self._maker_of(atom) is not None and atom not in self.made

    def _operand(self, atom: Atom) -> Atom:
        return self.made.get(atom) or self._fenced.get(atom, atom)

    def _fences(self, op: Op) -> Iterator[Op]:
        """Barriers before what is kept, one for each value."""
        for atom in op.operands:
            if not isinstance(atom, Value) or atom in self.made or atom in self._fenced:
                continue
            fenced = self._fenced[atom] = Value(atom.shape, atom.dtype)
            yield Op("optimization_barrier", (atom,), (fenced,), source=op.source)

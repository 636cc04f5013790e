"""Copies of ops that compute values a second time, from values that were kept.

It is the common part of all rematerialization.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait

Fetch = Callable[[Value], tuple[Value, tuple[Op, ...]]]
"""A function that makes a kept value available to recomputed ops.

From the kept value, it returns the value to read instead and the ops to run before.
"""


def behind_barrier(value: Value) -> tuple[Value, tuple[Op, ...]]:
    """The value behind an optimization barrier, and the op of that barrier.

    The barrier prevents compilers from merging a recomputation with the original
    computation.
    """
    fenced = Value(value.shape, value.dtype)
    return fenced, (Op("optimization_barrier", (value,), (fenced,)),)


class Recomputation:
    """Values of one program or body that have been computed a second time so far.

    copies: for each recomputed value, its second copy. A value is fetched rather than
        computed again if it is to be kept, if no op computes it, or if an op with
        effects or a loop computes it. A loop's results are recomputed in other loops
        (`rematerialize_scans`).
    """

    def __init__(
        self, ops: Sequence[Op], keep: Collection[Value], fetch: Fetch
    ) -> None:
        self.copies: dict[Atom, Value] = {}
        self._fetch = fetch
        self._fetched: dict[Atom, Atom] = {}
        self._keep = frozenset(keep)
        self._producers = {
            result: op
            for op in ops
            if not op.has_effect and not has_trait(op.kind, Trait.LOOP)
            for result in op.results
            if result not in self._keep
        }

    def can_recompute(self, atom: Atom) -> bool:
        """Whether the value may be computed a second time, rather than fetched."""
        return atom in self._producers

    def ops_for(self, atom: Atom) -> Iterator[Op]:
        """The ops that compute a value again, after the ops that its operands need."""
        stack = [atom]
        while stack:
            atom = stack[-1]
            op = self._producers.get(atom)  # pyright: ignore[reportArgumentType]
            if op is None or atom in self.copies:
                stack.pop()
                continue
            needed = [
                o for o in op.operands if o in self._producers and o not in self.copies
            ]
            if needed:
                stack += needed
                continue
            stack.pop()
            for operand in op.operands:
                yield from self._fetch_once(operand)
            results = tuple(Value(r.shape, r.dtype) for r in op.results)
            operands = tuple(
                self.copies.get(a) or self._fetched.get(a, a) for a in op.operands
            )
            for old, new in zip(op.results, results, strict=True):
                if old not in self._keep:
                    self.copies[old] = new
            bodies = tuple(copied(body, is_recomputed=True) for body in op.bodies)
            yield replace(
                op,
                operands=operands,
                results=results,
                bodies=bodies,
                is_recomputed=True,
            )

    def _fetch_once(self, operand: Atom) -> tuple[Op, ...]:
        is_known = operand in self.copies or operand in self._fetched
        if is_known or not isinstance(operand, Value):
            return ()
        self._fetched[operand], ops = self._fetch(operand)
        return ops


def copied(program: Program, is_recomputed: bool = False) -> Program:
    """The same program over new values, since only one op may produce a value.

    is_recomputed: whether the copy computes values a second time.
    """
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
            bodies=tuple(copied(body, is_recomputed) for body in op.bodies),
            is_recomputed=op.is_recomputed or is_recomputed,
        )
        for op in program.ops
    )
    return Program(
        inputs, ops, tuple(new.get(a, a) for a in program.outputs), constants
    )

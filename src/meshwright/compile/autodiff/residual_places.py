"""Places of residuals that bodies compute: before a loop, or as results of a branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshwright.compile.autodiff.links import Body, Link, fresh
from meshwright.compile.autodiff.op_rules import zeros_op
from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops import Trait, has_trait
from meshwright.program.rewrite.recomputation import Recomputation


class Hoisted:
    """Values of a scan's body that are the same in all iterations, computed before it.

    invariant: those values. ops: the ops outside that compute the ones asked for.
    """

    def __init__(self, ops: Sequence[Op], links: Sequence[Link]) -> None:
        self.ops: list[Op] = []
        operands = {
            link.inputs[0]: link.operand
            for link in links
            if link.inputs and not link.outputs and not link.is_stacked
        }
        self.invariant: set[Atom] = set()
        known: set[Atom] = set(operands)
        for op in ops:
            inputs = [a for a in op.operands if isinstance(a, Value)]
            is_pure = not (op.has_effect or has_trait(op.kind, Trait.DRAWS_FROM_STATE))
            if is_pure and not op.bodies and all(a in known for a in inputs):
                known.update(op.results)
                self.invariant.update(op.results)
        self._second = Recomputation(ops, (), lambda v: (operands[v], ()))  # pyright: ignore[reportArgumentType]

    def outside(self, value: Value) -> Value:
        """The value before the loop."""
        self.ops += self._second.ops_for(value)
        return self._second.copies[value]


class Slots:
    """Places for the residuals of a cond's branches; branches share those of a type."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._slots: list[tuple[Value, dict[int, Value], dict[int, Value]]] = []

    def add(self, branch: int, value: Value, inside: Value) -> None:
        """Find a place for `value` of a branch, which reads it as `inside`."""
        for outer, written, read in self._slots:
            is_same = (outer.shape, outer.dtype) == (value.shape, value.dtype)
            if is_same and branch not in written:
                written[branch], read[branch] = value, inside
                return
        self._slots.append((fresh(value), {branch: value}, {branch: inside}))

    def fill(self, parts: Sequence[Body]) -> list[Body]:
        """The branches, with zeros in the places that they do not use."""
        filled: list[Body] = []
        for branch, part in enumerate(parts):
            ops = [*part.ops]
            for outer, written, _ in self._slots:
                if branch not in written:
                    written[branch] = fresh(outer)
                    ops.append(zeros_op(written[branch], ""))
            filled.append(replace(part, ops=ops))
        return filled

    def writes(self) -> list[Link]:
        """The links out of the branches that compute residuals."""
        return [
            Link(None, {}, {b: w[b] for b in range(self._count)}, outer)
            for outer, w, _ in self._slots
        ]

    def reads(self) -> list[Link]:
        """The links into the branches that read residuals."""
        return [Link(outer, read) for outer, _, read in self._slots]

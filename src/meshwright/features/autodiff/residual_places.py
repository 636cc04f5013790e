"""Residuals that are computed inside of loops and branches: how they get out.

A value that is the same in all iterations of a scan is computed again before the loop.
The branches of a cond return residuals in results that they share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshwright.features.autodiff.op_rules import zeros_op
from meshwright.features.autodiff.region_links import Body, Link, fresh
from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops import Trait, has_trait
from meshwright.program.rewrite.recomputation import Recomputation


class Hoisted:
    """Values of a scan's body that are equal in all iterations, computed before it.

    invariant: all such values.
    ops: ops to put before the scan; they compute the values that `outside` was called
        with.
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
        """A value before the scan that equals `value`, which does not change in it."""
        self.ops += self._second.ops_for(value)
        return self._second.copies[value]


class Slots:
    """Results of a cond in which its branches return residuals.

    Only one branch runs, so residuals of different branches with the same type share a
    result.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._slots: list[tuple[Value, dict[int, Value], dict[int, Value]]] = []

    def add(self, branch: int, value: Value, inside: Value) -> None:
        """Choose the result of the cond that returns the residual `value` of a branch.

        inside: the input through which the same branch of the linear cond reads it.
        """
        for outer, written, read in self._slots:
            is_same = (outer.shape, outer.dtype) == (value.shape, value.dtype)
            if is_same and branch not in written:
                written[branch], read[branch] = value, inside
                return
        self._slots.append((fresh(value), {branch: value}, {branch: inside}))

    def fill(self, parts: Sequence[Body]) -> list[Body]:
        """The branches of the nonlinear cond, with zeros for results they lack."""
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
        """The links by which branches of the nonlinear cond return residuals."""
        return [
            Link(None, {}, {b: w[b] for b in range(self._count)}, outer)
            for outer, w, _ in self._slots
        ]

    def reads(self) -> list[Link]:
        """The links by which branches of the linear cond read residuals."""
        return [Link(outer, read) for outer, _, read in self._slots]

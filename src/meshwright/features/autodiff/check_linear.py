"""The checker of linear programs, which runs after each transformation.

It checks types, and that each linear value is used exactly once. It shares no code with
the transformations, except the table that says which ops are linear
(`typing.linear_sets`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from meshwright.errors import AutodiffError
from meshwright.features.autodiff.op_rules import is_differentiable
from meshwright.features.autodiff.region_links import Link, is_condition, links_of
from meshwright.features.autodiff.typing import (
    ADD,
    DROP,
    DUP,
    ZERO,
    LinearProgram,
    is_linear_in,
    positions_in,
)
from meshwright.program.ir import Atom, Op, Program, ProgramWriter, Value
from meshwright.program.ops import Trait, has_trait


def check_linear(checked: LinearProgram) -> LinearProgram:
    """Return the program; raise `AutodiffError` with a variable if it is not linear.

    A program is linear if three rules hold. Each linear value is used exactly once,
    also in the nested programs of loops and branches. Each op is linear in its linear
    operands, and its results are linear if and only if it has linear operands. A value
    that enters or leaves a nested program is linear inside if and only if it is linear
    outside.
    """
    _Checker(checked).program(checked.program)
    return checked


class _Checker:
    """The checks of one program and its nested programs.

    Errors name values and lines as the printed program (`str`) does.
    """

    def __init__(self, checked: LinearProgram) -> None:
        self.linear = checked.linear
        self._writer = ProgramWriter(checked.linear)
        self._lines = list(self._writer.program(checked.program, "program", ""))

    def program(self, program: Program) -> None:
        """Check a program, or the nested program of a loop or branch."""
        available: dict[Value, bool] = {}
        self._define(program.inputs, available, None)
        for value in program.constants:
            if value in self.linear:
                self._fail(value, None, "is a constant, and so cannot be linear")
        for op in program.ops:
            self._use(op.operands, available, op)
            self._op(op)
            self._define(op.results, available, op)
        self._use(program.outputs, available, None)
        for value, is_used in available.items():
            if not is_used:
                self._fail(value, None, "is never used: consume it by drop")

    def _define(
        self,
        values: Iterable[Value],
        available: dict[Value, bool],
        op: Op | None,
    ) -> None:
        for value in values:
            if value not in self.linear:
                continue
            if not is_differentiable(value.dtype):
                what = (
                    f"is {value.dtype}; only floats and complex numbers can be linear"
                )
                self._fail(value, op, what)
            available[value] = False

    def _use(
        self, atoms: Iterable[Atom], available: dict[Value, bool], op: Op | None
    ) -> None:
        for atom in atoms:
            if atom not in self.linear or not isinstance(atom, Value):
                continue
            if atom not in available:
                self._fail(atom, op, "is not defined before it is used here")
            if available[atom]:
                self._fail(atom, op, "is used a second time: make two of it by dup")
            available[atom] = True

    def _op(self, op: Op) -> None:
        if op.bodies:
            self._region(op)
            return
        found = positions_in(op.operands, self.linear)
        if op.kind in (DUP, DROP, ZERO, ADD) and (found or op.kind == ZERO):
            self._structural(op, found)
        results = positions_in(op.results, self.linear)
        if not found and op.kind != ZERO:
            for i in results:
                what = f"is linear, but no operand of {op.kind} is"
                self._fail(op.results[i], op, what)
            return
        if found and not is_linear_in(op, found):
            self._not_linear(op, found)
        for i in range(len(op.results)):
            if i not in results:
                what = f"is not linear, but depends on {self._names(op.operands)}"
                self._fail(op.results[i], op, what)

    def _structural(self, op: Op, found: Collection[int]) -> None:
        shapes = {(a.shape, a.dtype) for a in (*op.operands, *op.results)}
        counts = {DUP: (1, 2), DROP: (1, 0), ZERO: (0, 1), ADD: (2, 1)}[op.kind]
        if (len(op.operands), len(op.results)) != counts or len(shapes) > 1:
            value = (*(op.operands[i] for i in found), *op.results)[0]
            wanted = f"takes {counts[0]} and makes {counts[1]}, all of one type"
            self._fail(value, op, f"is in a malformed {op.kind}, which {wanted}")

    def _not_linear(self, op: Op, found: Collection[int]) -> None:
        """Raise the error for an op that is not linear in operands `found`."""
        alone = [i for i in found if is_linear_in(op, (i,))]
        value = op.operands[next(iter(found))]
        if len(found) > 1 and len(alone) == len(found):
            names = self._names(op.operands)
            what = f"is one of {names}, and {op.kind} is linear in one operand only"
        elif any(is_linear_in(op, set(found) | {i}) for i in range(len(op.operands))):
            what = (
                f"meets an operand of {op.kind} that is not linear: their sum is affine"
            )
        else:
            what = f"is an operand in which {op.kind} is not linear"
        self._fail(value, op, what)

    def _names(self, atoms: Iterable[Atom]) -> str:
        return ", ".join(self._writer.atom(a) for a in atoms if a in self.linear)

    def _region(self, op: Op) -> None:
        for link in links_of(op):
            self._link(op, link)
        for body in op.bodies:
            self.program(body)

    def _link(self, op: Op, link: Link) -> None:
        inner = [*link.inputs.values(), *link.outputs.values()]
        outer = [a for a in (link.operand, link.result) if a is not None]
        linear = [end for end in (*outer, *inner) if end in self.linear]
        if not linear:
            return
        value = linear[0]
        for end in (*outer, *inner):
            if end not in self.linear:
                other = self._writer.atom(end)
                what = f"is linear, but {other} on the same wire of {op.kind} is not"
                self._fail(value, op, what)
        if not inner:
            self._fail(value, op, f"decides what {op.kind} does, which is not linear")
        if any(is_condition(op, b) for b in (*link.inputs, *link.outputs)):
            self._fail(value, op, "is read by the condition of a while loop")
        is_constant = not link.is_stacked and not link.outputs
        if is_constant and has_trait(op.kind, Trait.LOOP):
            what = f"is used in each iteration of {op.kind}: carry it, and dup it there"
            self._fail(value, op, what)
        self._branches(op, link, value)

    def _branches(self, op: Op, link: Link, value: Atom) -> None:
        """Raise an error if only some branches of a cond use or return a value."""
        for ends in (link.inputs, link.outputs):
            missing = [b for b in range(len(op.bodies)) if b not in ends]
            if op.kind == "cond" and ends and missing:
                self._fail(value, op, f"is missing in branch {missing[0]} of cond")

    def _fail(self, value: Atom, op: Op | None, what: str) -> None:
        name = self._writer.atom(value)
        raise AutodiffError(f"{name} {what}{self._place(name, op)}")

    def _place(self, name: str, op: Op | None) -> str:
        """The printed line of an op, or of a value's definition, for a message."""
        wanted = f"{name}:" if op is None else self._writer.op(op)
        for number, line in enumerate(self._lines, 1):
            if wanted in line:
                source = "" if op is None or not op.source else f" ({op.source})"
                return f", in line {number}: {line.strip().removesuffix(' {')}{source}"
        return ""

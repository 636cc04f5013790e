"""A device program with the copies that images cut in space need (`space`).

A convolution reads parts with their seams, and reads and writes with images and
features as the dims within a register; what has few features lies otherwise in
between, where less is padding. A value that is the same for a whole image is spread, and
what a reader wants whole is put together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from meshwright.ir import Atom, Op, Program, Value
from meshwright.simulate.layout import Layout
from meshwright.simulate.space import Cut, Cuts, Operands
from meshwright.simulate.unit import REGROUP, SAME_MEMORY, Kind, kind_of


def regrouped(program: Program, layout: Layout) -> tuple[Program, Mapping[Op, Op]]:
    """The program with such copies; how all that is cut lies is noted in the layout.

    The second result says, for each op made anew, which one it was.
    """
    pass_ = _Regroup(layout)
    return pass_.program(program), pass_.origins


class _Regroup:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.origins: dict[Op, Op] = {}

    def program(self, program: Program) -> Program:
        """The program so changed; itself where no image is cut."""
        cuts = Cuts(program, self.layout.tile[0] - 1)
        if not cuts.of and not any(op.bodies for op in program.ops):
            return program
        scope = _Scope(cuts, self.layout)
        ops = [made for op in program.ops for made in self.ops(op, scope)]
        outputs: list[Atom] = []
        for atom in program.outputs:
            outputs.append(scope.whole(atom))
        ops += scope.take()
        return replace(program, ops=tuple(ops), outputs=tuple(outputs))

    def ops(self, op: Op, scope: _Scope) -> list[Op]:
        """What stands in an op's place: copies before it, the op, and behind."""
        made = op
        if op.bodies:
            bodies = tuple(map(self.program, op.bodies))
            made = replace(op, bodies=bodies)
        operands = scope.operands(op)
        before = scope.take()
        results = scope.results(op)
        if operands != op.operands or results != op.results:
            made = replace(made, operands=operands, results=results)
        if made is not op:
            self.origins[made] = op
        return [*before, made, *scope.take()]


class _Scope:
    """Of one program, the copies that there are already."""

    def __init__(self, cuts: Cuts, layout: Layout) -> None:
        self.cuts = cuts
        self.layout = layout
        self._made: list[Op] = []
        self._known: dict[tuple[Value, Cut | None], Value] = {}
        self._written: dict[Value, Value] = {}
        for value, cut in cuts.of.items():
            layout.lies[value] = cut.shape(value.shape), None

    def take(self) -> list[Op]:
        """The copies made since the last call."""
        made, self._made = self._made, []
        return made

    def operands(self, op: Op) -> tuple[Atom, ...]:
        """What an op reads instead."""
        read = self.cuts.read.get(op)
        if read is not None:
            return self._in_parts(op, read)
        cut = self.cuts.cut(op.results[0]) if op.results else None
        if cut is None:
            return op.operands if self._is_sum(op) else tuple(map(self.whole, op.operands))
        alike = tuple(self._alike(v, op.results[0], cut) for v in op.operands)
        if not self._ends_a_convolution(op):
            return alike
        self._lies_as_written(op.results[0], cut)
        return tuple(self._written.get(v, v) for v in alike if isinstance(v, Value))

    def results(self, op: Op) -> tuple[Value, ...]:
        """What an op writes instead: a convolution its own layout, if it is another."""
        if op not in self.cuts.read or op.results[0] not in self.cuts.of:
            return op.results
        (result,) = op.results
        cut = self.cuts.of[result]
        if not self._is_moved(result, cut):
            return op.results
        if result not in self.cuts.continued:
            self._lies_as_written(result, cut)
            return op.results
        written = Value(result.shape, result.dtype)
        self._lies_as_written(written, cut)
        self._copy(written, result)
        self._written[result] = written
        return (written,)

    def _lies_as_written(self, value: Value, cut: Cut) -> None:
        """Note that a value lies as convolutions write."""
        self.layout.lies[value] = cut.shape(value.shape), (cut.batch, cut.feature)

    def _ends_a_convolution(self, op: Op) -> bool:
        """Whether a convolution writes what an op makes of its result, beside that.

        Such as squares, which nobody reads but a sum.
        """
        return (
            len(op.operands) == 1
            and op.operands[0] in self._written
            and op.results[0] not in self.cuts.continued
        )

    def whole(self, atom: Atom) -> Atom:
        """Images put together again, if an atom is cut."""
        cut = self.cuts.cut(atom)
        if cut is None or not isinstance(atom, Value) or atom in self._written:
            return atom
        return self._known_copy(atom, None, atom)

    def _in_parts(self, op: Op, read: Operands) -> tuple[Atom, ...]:
        """The operands of a convolution, those that are cut in parts with seams."""
        operands = list(op.operands)
        for i, cut in read.cuts.items():
            value, copies = operands[i], min(read.copies, 1) if i else read.copies
            if isinstance(value, Value):
                operands[i] = self._parts(value, cut, copies)
        return tuple(operands)

    def _parts(self, value: Value, cut: Cut, copies: int) -> Value:
        """Parts with their seams, as a convolution reads them."""
        shape = cut.shape(value.shape)
        if not self._is_moved(value, cut):
            if copies:
                return value
            made = self._copy(value, Value(value.shape, value.dtype))
            self.layout.lies[made] = shape, (cut.batch, cut.feature)
            return made
        many = (*shape, max(copies, 1))
        made = self._copy(value, Value(value.shape, value.dtype))
        self.layout.lies[made] = many, None
        read = self._copy(made, Value(value.shape, value.dtype))
        self.layout.lies[read] = many, (cut.batch, cut.feature)
        return read

    def _alike(self, atom: Atom, result: Value, cut: Cut) -> Atom:
        """An operand in step with a result that is cut."""
        if not isinstance(atom, Value) or not atom.shape:
            return atom
        own = self.cuts.cut(atom)
        if own is None:
            if self.cuts.is_same(atom, cut.batch):
                return atom
            return self._known_copy(self.cuts.source(atom), cut, result)
        return atom if own.extent == cut.extent else self._known_copy(atom, cut, atom)

    def _known_copy(self, value: Value, cut: Cut | None, like: Value) -> Value:
        """The copy of a value that is cut so, or put together."""
        known = self._known.get((value, cut))
        if known is None:
            known = self._copy(value, Value(like.shape, value.dtype))
            if cut is not None:
                self.layout.lies[known] = cut.shape(like.shape), None
            self._known[value, cut] = known
        return known

    def _copy(self, value: Value, made: Value) -> Value:
        self._made.append(Op(REGROUP, (value,), (made,)))
        return made

    def _is_sum(self, op: Op) -> bool:
        """Whether an op reads parts as they are: a sum, if they are not filled up."""
        if kind_of(op) is not Kind.REDUCTION and op.kind not in SAME_MEMORY:
            return False
        cut = self.cuts.cut(op.operands[0])
        if cut is None or cut.is_exact(op.operands[0].shape):
            return True
        axes: object = op.params.get("axes", ())
        return isinstance(axes, tuple) and cut.batch in axes and cut.space in axes

    def _is_moved(self, value: Value, cut: Cut) -> bool:
        """Whether images lie elsewise between convolutions, with less padding."""
        shape = cut.shape(value.shape)
        rows, columns = shape[cut.batch], shape[cut.feature]
        if not math.prod(shape):
            return False
        padded = self.layout.padded
        return padded(shape, (rows, columns)) > padded(shape, shape)

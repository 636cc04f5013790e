"""A device program with the copies that images cut in space need (`rules.space`).

A convolution reads parts with their seams, and has images and features as the dims
within a register; with few features they lie otherwise in between, where less is
padding. What is the same for a whole image is spread over its parts, and what a reader
wants whole is put together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from meshwright.predict.compilers.tpu.image_cuts import Cuts, Operands
from meshwright.predict.compilers.tpu.image_parts import PARTS, Cut
from meshwright.predict.compilers.xla.fusion import (
    REGROUP,
    FusionKind,
    kind_of,
)
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait


def regrouped(
    program: Program, layout: Layout, num_devices: int = 1
) -> tuple[Program, Mapping[Op, Op]]:
    """The program with such copies; how all that is cut lies is noted in the layout.

    num_devices: among which its images are yet to be divided. The second result says,
    for each op made anew, which one it was.
    """
    origins: dict[Op, Op] = {}
    most = most_images(layout, num_devices)
    few = any(shape[dims[0]] <= most for shape, dims in layout.images.items())
    changes = _Changes(layout, num_devices, origins)
    return _regrouped(program, changes) if few else program, origins


def most_images(layout: Layout, num_devices: int = 1) -> int:
    """So many images of so many devices are cut at most: less than a register's rows."""
    return layout.tile[0] * num_devices - 1


@dataclass(frozen=True, slots=True)
class _Changes:
    """Those of a program and its bodies; `regrouped` says what is what."""

    layout: Layout
    num_devices: int
    origins: dict[Op, Op]


def _regrouped(program: Program, changes: _Changes) -> Program:
    """The program so changed; itself where no image is cut."""
    layout, origins = changes.layout, changes.origins
    cuts = Cuts(program, most_images(layout, changes.num_devices))
    if not cuts.of and not any(op.bodies for op in program.ops):
        return program
    scope, ops = _Scope(cuts, layout, changes.num_devices), list[Op]()
    for op in program.ops:
        bodies = tuple(_regrouped(body, changes) for body in op.bodies)
        operands = scope.operands(op)
        ops += scope.take()
        results = scope.results(op)
        made = op
        if (bodies, operands, results) != (op.bodies, op.operands, op.results):
            made = replace(op, bodies=bodies, operands=operands, results=results)
            origins[made] = op
        ops += [made, *scope.take()]
    outputs = tuple(map(scope.whole, program.outputs))
    if (*ops, *scope.made) == program.ops and outputs == program.outputs:
        return program
    return replace(program, ops=(*ops, *scope.take()), outputs=outputs)


class _Scope:
    """Of one program, the copies that there are already.

    made: copies that have no place yet. written: by result of a convolution that lies
    otherwise later, what it writes.
    """

    def __init__(self, cuts: Cuts, layout: Layout, num_devices: int) -> None:
        self.cuts = cuts
        self.layout = layout
        self.num_devices = num_devices
        self.written: dict[Atom, Value] = {}
        self.made: list[Op] = []
        self._known: dict[tuple[Value, Cut | None, tuple[int, ...]], Value] = {}
        for value, cut in cuts.of.items():
            if isinstance(value, Value):
                layout.lies[value] = cut.shape(value.shape), None

    def take(self) -> list[Op]:
        """The copies made since the last call."""
        made, self.made = self.made, []
        return made

    def operands(self, op: Op) -> tuple[Atom, ...]:
        """What an op reads instead."""
        read = self.cuts.read.get(op)
        if read is not None:
            return (
                *map(self._parts, op.operands, read.cuts, _copies(read)),
                *op.operands[2:],
            )
        result = op.results[0] if op.results else None
        cut = self.cuts.of.get(result) if result is not None else None
        if result is None or cut is None:
            is_sum = self._is_sum(op)
            return op.operands if is_sum else tuple(map(self.whole, op.operands))
        if len(op.operands) == 1 and result not in self.cuts.continued:
            # Such as squares that are only summed: a convolution writes them too.
            written = self.written.get(op.operands[0])
            if written is not None:
                self._lies_as_written(result, cut)
                return (written,)
        return tuple(self._alike(v, result, cut) for v in op.operands)

    def results(self, op: Op) -> tuple[Value, ...]:
        """What an op writes instead: a convolution what lies as it writes."""
        cut = self.cuts.of.get(op.results[0]) if op in self.cuts.read else None
        if cut is None or not self._is_moved(op.results[0], cut):
            return op.results
        (result,) = op.results
        written = result
        if result in self.cuts.continued:
            self.written[result] = written = Value(result.shape, result.dtype)
            self._copy(written, result)
        self._lies_as_written(written, cut)
        return (written,)

    def whole(self, atom: Atom) -> Atom:
        """Images put together again, if an atom is cut."""
        if not isinstance(atom, Value) or atom not in self.cuts.of:
            return atom
        # What has been copied once lies so that its parts are next to each other.
        return atom if atom in self.written else self._known_copy(atom, None, atom)

    def _parts(self, atom: Atom, cut: Cut | None, copies: int) -> Atom:
        """Parts as a convolution reads them, in so many copies or one with seams."""
        if cut is None or not isinstance(atom, Value):
            return atom
        is_moved = self._is_moved(atom, cut)
        if copies and not is_moved:
            return atom
        shape, read = (*cut.shape(atom.shape), max(copies, 1)), atom
        for minor in (None, (cut.batch, cut.feature))[0 if is_moved else 1 :]:
            read = self._copy(read, Value(atom.shape, atom.dtype))
            self.layout.lies[read] = shape, minor
        return read

    def _alike(self, atom: Atom, result: Value, cut: Cut) -> Atom:
        """An operand in step with a result that is cut."""
        if not isinstance(atom, Value) or not atom.shape:
            return atom
        own = self.cuts.of.get(atom)
        if own is None and not self.cuts.is_same(atom, cut.batch):
            return self._known_copy(self.cuts.source(atom), cut, result)
        if own is None or own.extent == cut.extent:
            return atom
        return self._known_copy(atom, cut, atom)

    def _known_copy(self, value: Value, cut: Cut | None, like: Value) -> Value:
        """The copy of a value that is cut so, or put together."""
        key = value, cut, like.shape
        known = self._known.get(key)
        if known is None:
            known = self._copy(value, Value(like.shape, value.dtype))
            if cut is not None:
                self.layout.lies[known] = cut.shape(like.shape), None
            self._known[key] = known
        return known

    def _copy(self, value: Value, made: Value) -> Value:
        self.made.append(Op(REGROUP, (value,), (made,)))
        return made

    def _lies_as_written(self, value: Value, cut: Cut) -> None:
        """Note that a value lies as convolutions write."""
        self.layout.lies[value] = cut.shape(value.shape), (cut.batch, cut.feature)

    def _is_sum(self, op: Op) -> bool:
        """Whether an op reads parts as they are: a sum, of all or of what fills them."""
        if kind_of(op) is not FusionKind.REDUCTION and not has_trait(
            op.kind, Trait.ALIASES_OPERAND
        ):
            return False
        axes: object = op.params.get("axes", ())
        summed = axes if isinstance(axes, tuple) else ()
        return all(
            cut is None
            or cut.extent * PARTS == operand.shape[cut.space]
            or (cut.batch in summed and cut.space in summed)
            for operand in op.operands
            for cut in (self.cuts.of.get(operand),)
        )

    def _is_moved(self, value: Value, cut: Cut) -> bool:
        """Whether images lie otherwise between convolutions, with less padding."""
        shape, padded = [*cut.shape(value.shape)], self.layout.padded
        shape[cut.batch] = -(-shape[cut.batch] // self.num_devices)
        minor = shape[cut.batch], shape[cut.feature]
        size = self.layout.itemsize(value)
        return padded(shape, minor, size) > padded(shape, shape, size)


def _copies(read: Operands) -> tuple[int, int]:
    """Of images, and of the gradient that a kernel's is made of with them."""
    return read.copies, min(read.copies, 1)

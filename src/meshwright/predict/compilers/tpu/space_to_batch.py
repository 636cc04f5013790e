"""Space-to-batch: the copies that images split in space need.

XLA: `SpaceToBatchConverter` (`xla/service/space_to_batch_converter.cc`). `image_splits`
says which images are split. A convolution reads parts with their halos, and has batch
and features as minor dims. With few features its results are copied in between to
another layout with less padding. A value that is constant over an image is broadcast
over its parts, and parts are joined again for consumers that need whole images.
"""

from dataclasses import dataclass, replace
from functools import partial

from meshwright.predict.compilers.model.compilation import Compilation, Origins, Rewrite
from meshwright.predict.compilers.model.fusion import (
    SPACE_TO_BATCH_COPY,
    FusionKind,
    kind_of,
)
from meshwright.predict.compilers.model.tiled_layouts import Layouts, PhysicalShape
from meshwright.predict.compilers.tpu.image_splits import ImageSplits
from meshwright.predict.compilers.tpu.spatial_split import PARTS, SpatialSplit
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait


def convert_space_to_batch(compilation: Compilation) -> Compilation:
    """The compilation after small batches of images are split in space."""
    layouts = compilation.layouts
    most = max_split_batch(layouts, compilation.num_devices)
    images = layouts.shapes.images.items()
    if not any(shape[dims[0]] <= most for shape, dims in images):
        return compilation
    physical: dict[Value, PhysicalShape] = {}
    rewrite = partial(_with_copies, compilation=compilation, physical=physical)
    split = Rewrite(rewrite)(compilation)
    return replace(split, layouts=layouts.changed(physical=physical))


def max_split_batch(layouts: Layouts, num_devices: int = 1) -> int:
    """The largest global batch, on `num_devices` devices, whose images are split.

    Each device then has fewer images than a register has rows.
    """
    return layouts.tile[0] * num_devices - 1


def _with_copies(
    program: Program,
    origins: Origins,
    compilation: Compilation,
    physical: dict[Value, PhysicalShape],
) -> Program:
    """The program with the copies that its split images need.

    It is the same program if no image is split. physical: receives the shapes in which
    split images are stored.
    """
    most = max_split_batch(compilation.layouts, compilation.num_devices)
    splits, ops = ImageSplits(program, most), list[Op]()
    if not splits.of and not any(op.bodies for op in program.ops):
        return program
    scope = _Scope(splits, compilation, physical)
    rewrite = partial(_with_copies, compilation=compilation, physical=physical)
    for op in program.ops:
        made = origins.with_bodies(op, rewrite)
        operands = scope.operands(op)
        ops += scope.take_copies()
        results = scope.results(op)
        if (operands, results) != (op.operands, op.results):
            made = origins.replace(made, operands=operands, results=results)
        ops += [made, *scope.take_copies()]
    outputs = tuple(map(scope.whole, program.outputs))
    ops += scope.take_copies()
    if tuple(ops) == program.ops and outputs == program.outputs:
        return program
    return replace(program, ops=tuple(ops), outputs=outputs)


@dataclass(eq=False)
class _Scope:
    """The copies that split images need in one program, made while its ops are visited.

    copies: copies that the next op needs, not yet placed before it.
    written: for a result of a convolution that is copied to another layout, the value
        that the convolution itself writes.
    """

    splits: ImageSplits
    compilation: Compilation
    physical: dict[Value, PhysicalShape]

    def __post_init__(self) -> None:
        self.written: dict[Atom, Value] = {}
        self.copies: list[Op] = []
        self._known: dict[tuple[object, ...], Value] = {}
        for value, split in self.splits.of.items():
            if isinstance(value, Value):
                self.physical[value] = PhysicalShape(split.shape(value.shape))

    def take_copies(self) -> list[Op]:
        """The copies made since the last call of this method."""
        made, self.copies = self.copies, []
        return made

    def operands(self, op: Op) -> tuple[Atom, ...]:
        """The operands of an op, replaced by the parts or whole images that it reads."""
        read = self.splits.read.get(op)
        if read is not None:
            copies = read.copies, min(read.copies, 1)  # of images, and of a gradient
            parts = map(self._parts, op.operands, read.splits, copies)
            return (*parts, *op.operands[2:])
        result = op.results[0] if op.results else None
        split = self.splits.of.get(result) if result is not None else None
        if result is None or split is None:
            is_sum = self._is_sum(op)
            return op.operands if is_sum else tuple(map(self.whole, op.operands))
        if len(op.operands) == 1 and result not in self.splits.continued:
            # Such as squares that are only summed: a convolution writes them too.
            written = self.written.get(op.operands[0])
            if written is not None:
                self._note_written(result, split)
                return (written,)
        return tuple(self._aligned(v, result, split) for v in op.operands)

    def results(self, op: Op) -> tuple[Value, ...]:
        """The results that an op writes; a convolution on parts writes in its own layout.

        If later ops need another layout, a copy of the result follows.
        """
        split = self.splits.of.get(op.results[0]) if op in self.splits.read else None
        if split is None or not self._is_copied(op.results[0], split):
            return op.results
        (result,) = op.results
        written = result
        if result in self.splits.continued:
            self.written[result] = written = Value(result.shape, result.dtype)
            self._copy(written, result)
        self._note_written(written, split)
        return (written,)

    def whole(self, atom: Atom) -> Atom:
        """The whole images of a value: a copy that joins the parts if it is split."""
        if not isinstance(atom, Value) or atom not in self.splits.of:
            return atom
        # The copy after a convolution has put the parts of an image side by side.
        return atom if atom in self.written else self._known_copy(atom, None, atom)

    def _parts(self, atom: Atom, split: SpatialSplit | None, num_copies: int) -> Atom:
        """The parts of an operand that a convolution reads, copied from the operand.

        They have halos; or there are `num_copies` shifted copies, for a kernel's gradient.
        """
        if split is None or not isinstance(atom, Value):
            return atom
        is_copied = self._is_copied(atom, split)
        if num_copies and not is_copied:
            return atom
        shape, read = (*split.shape(atom.shape), max(num_copies, 1)), atom
        for minor in (None, (split.batch, split.feature))[0 if is_copied else 1 :]:
            read = self._copy(read, Value(atom.shape, atom.dtype))
            self.physical[read] = PhysicalShape(shape, minor)
        return read

    def _aligned(self, atom: Atom, result: Value, split: SpatialSplit) -> Atom:
        """An operand of an elementwise op, in the parts in which the result is computed."""
        if not isinstance(atom, Value) or not atom.shape:
            return atom
        own = self.splits.of.get(atom)
        if own is None and not self.splits.is_same(atom, split.batch):
            return self._known_copy(self.splits.source(atom), split, result)
        if own is None or own.extent == split.extent:
            return atom
        return self._known_copy(atom, split, atom)

    def _known_copy(
        self, value: Value, split: SpatialSplit | None, like: Value
    ) -> Value:
        """A copy of a value in the parts of `split`, or whole for `None`; made only once.

        like: a value with the shape of the copy before it is split.
        """
        key = value, split, like.shape
        known = self._known.get(key)
        if known is None:
            known = self._copy(value, Value(like.shape, value.dtype))
            if split is not None:
                self.physical[known] = PhysicalShape(split.shape(like.shape))
            self._known[key] = known
        return known

    def _copy(self, value: Value, made: Value) -> Value:
        self.copies.append(Op(SPACE_TO_BATCH_COPY, (value,), (made,)))
        return made

    def _note_written(self, value: Value, split: SpatialSplit) -> None:
        """Record that a value is stored in the layout that convolutions write."""
        minor = split.batch, split.feature
        self.physical[value] = PhysicalShape(split.shape(value.shape), minor)

    def _is_sum(self, op: Op) -> bool:
        """Whether an op is a sum over whole images, which reads parts without copies.

        A sum over less is one too if the parts fill the image without padding.
        """
        is_bitcast = has_trait(op.kind, Trait.ALIASES_OPERAND)
        if kind_of(op) is not FusionKind.REDUCTION and not is_bitcast:
            return False
        axes: object = op.params.get("axes", ())
        summed = axes if isinstance(axes, tuple) else ()
        return all(
            split is None
            or split.extent * PARTS == operand.shape[split.space]
            or (split.batch in summed and split.space in summed)
            for operand in op.operands
            for split in (self.splits.of.get(operand),)
        )

    def _is_copied(self, value: Value, split: SpatialSplit) -> bool:
        """Whether images have another, less padded layout between convolutions."""
        shape, layouts = [*split.shape(value.shape)], self.compilation.layouts
        shape[split.batch] = -(-shape[split.batch] // self.compilation.num_devices)
        minor = shape[split.batch], shape[split.feature]
        size, padded = layouts.itemsize(value), layouts.padded
        return padded(shape, minor, size) > padded(shape, shape, size)

"""Images that the TPU compiler splits in space, because their batch is small.

If a device has fewer images than a register has rows, it cuts each image into parts along
its last spatial dim, and treats each part as an image. Ops after a convolution work on
such parts as long as they can. The decisions are those of XLA's `SpaceToBatchConverter`.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from meshwright.predict.compilers.tpu.spatial_split import (
    SpatialSplit,
    Window,
    split_of_result,
)
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait


class SplitOperands(NamedTuple):
    """How a convolution reads its two operands if images are split: as parts with halos.

    splits: the split of each operand; `None` for one that is read whole.
    copies: for the gradient of a kernel, the number of copies of the parts, one for
        each pixel of the kernel; each copy is shifted by one pixel. Otherwise 0.
    """

    splits: tuple[SpatialSplit | None, SpatialSplit | None]
    copies: int = 0


class ImageSplits:
    """The images of a program that are split in space, and how.

    of: the split of each value that exists only in parts. read: for each convolution, the
    splits in which it reads its operands. continued: values that the next op reads in the
    parts in which they were computed, without a copy.
    """

    def __init__(self, program: Program, max_batch: int) -> None:
        self.of: dict[Atom, SpatialSplit] = {}
        self.read: dict[Op, SplitOperands] = {}
        self.continued: set[Atom] = set()
        self._broadcasts: dict[Atom, Op] = {}
        for op in program.ops:
            if op.kind == "conv_general_dilated":
                self._convolve(op, max_batch)
            elif op.kind == "broadcast_in_dim":
                self._broadcasts[op.results[0]] = op
            elif self.of:
                self._propagate(op)

    def is_same(self, atom: Atom, dim: int) -> bool:
        """Whether all elements of an array along a dim are equal, as after a broadcast."""
        broadcast = self._broadcasts.get(atom)
        if atom.shape[dim] == 1 or broadcast is None:
            return atom.shape[dim] == 1
        dims: Any = broadcast.params.get("broadcast_dimensions", ())
        read = broadcast.operands[0].shape
        return dim not in dims or read[list(dims).index(dim)] == 1

    def source(self, atom: Value) -> Value:
        """The operand of the broadcast that computes a value; else the value itself."""
        broadcast = self._broadcasts.get(atom)
        read = atom if broadcast is None else broadcast.operands[0]
        return read if isinstance(read, Value) else atom

    def images(self, op: Op) -> tuple[Value, int] | None:
        """A split operand or result of an op, and its batch dim; `None` without any."""
        read = self.read.get(op)
        first = () if read is None else zip(op.operands, read.splits, strict=False)
        others = ((v, self.of.get(v)) for v in (*op.operands, *op.results))
        for atom, split in (*first, *others):
            if split is not None and isinstance(atom, Value):
                return atom, split.batch
        return None

    def _convolve(self, op: Op, max_batch: int) -> None:
        params: Any = op.params
        if not params["window_strides"] or params.get("batch_group_count", 1) != 1:
            return
        window, image = Window.of(op), op.operands[0]
        if image.shape[window.image.batch] > max_batch or not window.is_splittable:
            self._differentiate(op, window)
            return
        split = self.of.get(image)
        is_next = split is not None and split.is_along(window.image)
        part = (
            window.next_part(split.extent) if split and is_next else window.first_part()
        )
        if part is not None:
            self.read[op] = SplitOperands((part, None))
            made = window.made_of(part.extent)
            self.of[op.results[0]] = replace(window.made, extent=made)

    def _differentiate(self, op: Op, window: Window) -> None:
        """Record how the operands of a kernel gradient are split in space, if they can be.

        In the gradient of a convolution's kernel, features act as the batch.
        """
        params: Any = op.params
        numbers, dilation = params["dimension_numbers"], params["rhs_dilation"][-1]
        specs = numbers.lhs_spec, numbers.rhs_spec
        image, made = (self.of.get(v) for v in op.operands)
        if image and made and image.extent > made.extent * dilation:
            return
        extent = made.extent if made is not None else 0
        if image is not None and made is None:
            extent = -(-image.extent // dilation)
        wanted = [
            SpatialSplit(spec[1], spec[-1], spec[0], extent * times)
            for spec, times in zip(specs, (dilation, 1), strict=True)
        ]
        fits = all(
            split is None or split.is_along(part)
            for split, part in zip((image, made), wanted, strict=True)
        )
        groups = params.get("feature_group_count", 1)
        if extent and fits and groups == window.stride == window.base_dilation == 1:
            copies = op.results[0].shape[numbers.out_spec[-1]]
            self.read[op] = SplitOperands((wanted[0], wanted[1]), copies)

    def _propagate(self, op: Op) -> None:
        """Split the results of an op other than a convolution, if it can work on parts."""
        if has_trait(op.kind, Trait.ELEMENTWISE):
            split = self._elementwise(op)
        else:
            split = split_of_result(op, [self.of.get(v) for v in op.operands])
        if split is not None:
            self.of |= dict.fromkeys(op.results, split)
            if not has_trait(op.kind, Trait.SLICES):
                self.continued.update(op.operands)

    def _elementwise(self, op: Op) -> SpatialSplit | None:
        """The split of an elementwise result: that of the operand with the largest parts.

        `None` if another operand is split along another dim, or is whole and varies
        along it.
        """
        shape = op.results[0].shape
        operands = [v for v in op.operands if v.shape]
        splits = [split for v in operands if (split := self.of.get(v)) is not None]
        if not splits or any(len(v.shape) != len(shape) for v in operands):
            return None
        widest = max(splits, key=lambda split: split.extent)
        for operand in operands:
            split = self.of.get(operand)
            if split is None and not self.is_same(operand, widest.space):
                return None
            if split is not None and not split.is_along(widest):
                return None
        return widest

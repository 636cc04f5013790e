"""Which images the TPU compiler cuts in space, for lack of images.

Where a device has fewer of them than a register has rows, parts of their last dim of
space count as images of their own, and what follows a convolution is computed on such
parts as long as it can be: XLA's `SpaceToBatchConverter` (openxla/xla,
`xla/service/space_to_batch_converter.cc`), whose decisions these are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from meshwright.predict.compilers.tpu.image_parts import Cut, Window, moved
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait

"""Ops that read of images what they need, however they lie."""


@dataclass(frozen=True, slots=True)
class Operands:
    """What a convolution reads of images that are cut, by operand.

    Parts with their seams; for the gradient of a kernel, as many `copies` of parts, each
    moved by one pixel, as the kernel has pixels.
    """

    cuts: tuple[Cut | None, Cut | None]
    copies: int = 0


class Cuts:
    """Those of a program.

    of: by value that is only there cut. read: by convolution what it reads of images.
    continued: values that are read as they are cut.
    """

    def __init__(self, program: Program, most: int) -> None:
        self.of: dict[Atom, Cut] = {}
        self.read: dict[Op, Operands] = {}
        self.continued: set[Atom] = set()
        self._spread: dict[Atom, Op] = {}
        for op in program.ops:
            if op.kind == "conv_general_dilated":
                self._convolve(op, most)
            elif op.kind == "broadcast_in_dim":
                self._spread[op.results[0]] = op
            elif self.of:
                self._hand_on(op)

    def is_same(self, atom: Atom, dim: int) -> bool:
        """Whether all elements along a dim are the same."""
        spread = self._spread.get(atom)
        if atom.shape[dim] == 1 or spread is None:
            return atom.shape[dim] == 1
        dims: Any = spread.params.get("broadcast_dimensions", ())
        read = spread.operands[0].shape
        return dim not in dims or read[list(dims).index(dim)] == 1

    def source(self, atom: Value) -> Value:
        """What a value repeats, else itself."""
        spread = self._spread.get(atom)
        read = atom if spread is None else spread.operands[0]
        return read if isinstance(read, Value) else atom

    def images(self, op: Op) -> tuple[Value, int] | None:
        """One of the images of an op that are cut there, and the dim that counts them."""
        read = self.read.get(op)
        first = () if read is None else zip(op.operands, read.cuts, strict=False)
        others = ((v, self.of.get(v)) for v in (*op.operands, *op.results))
        for atom, cut in (*first, *others):
            if cut is not None and isinstance(atom, Value):
                return atom, cut.batch
        return None

    def _convolve(self, op: Op, most: int) -> None:
        params: Any = op.params
        if not params["window_strides"] or params.get("batch_group_count", 1) != 1:
            return
        window, image = Window.of(op), op.operands[0]
        if image.shape[window.image.batch] > most or not window.is_cut:
            self._differentiate(op, window)
            return
        cut = self.of.get(image)
        is_next = cut is not None and cut.is_along(window.image)
        part = window.next_part(cut.extent) if cut and is_next else window.first_part()
        if part is not None:
            self.read[op] = Operands((part, None))
            made = window.made_of(part.extent)
            self.of[op.results[0]] = replace(window.made, extent=made)

    def _differentiate(self, op: Op, window: Window) -> None:
        """The gradient of a kernel, which sums over images: they count as features."""
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
            Cut(spec[1], spec[-1], spec[0], extent * times)
            for spec, times in zip(specs, (dilation, 1), strict=True)
        ]
        fits = all(
            cut is None or cut.is_along(part)
            for cut, part in zip((image, made), wanted, strict=True)
        )
        groups = params.get("feature_group_count", 1)
        if extent and fits and groups == window.stride == window.stuffing == 1:
            copies = op.results[0].shape[numbers.out_spec[-1]]
            self.read[op] = Operands((wanted[0], wanted[1]), copies)

    def _hand_on(self, op: Op) -> None:
        """Note what an op that is no convolution makes of what is cut."""
        if has_trait(op.kind, Trait.ELEMENTWISE):
            cut = self._elementwise(op)
        else:
            cut = moved(op, [self.of.get(v) for v in op.operands])
        if cut is not None:
            self.of |= dict.fromkeys(op.results, cut)
            if not has_trait(op.kind, Trait.SLICES):
                self.continued.update(op.operands)

    def _elementwise(self, op: Op) -> Cut | None:
        """As the operand with the largest parts.

        All others are cut along the same dim, or the same along it.
        """
        shape = op.results[0].shape
        operands = [v for v in op.operands if v.shape]
        cuts = [cut for v in operands if (cut := self.of.get(v)) is not None]
        if not cuts or any(len(v.shape) != len(shape) for v in operands):
            return None
        widest = max(cuts, key=lambda cut: cut.extent)
        for operand in operands:
            cut = self.of.get(operand)
            if cut is None and not self.is_same(operand, widest.space):
                return None
            if cut is not None and not cut.is_along(widest):
                return None
        return widest

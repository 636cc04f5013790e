"""Which images the TPU compiler cuts in space, for lack of images.

Where a device has fewer images than a register has rows, the last dim of space is cut
into parts that count as images of their own, and what follows a convolution is computed
in that form as long as it can be: XLA's `SpaceToBatchConverter` (openxla/xla,
`xla/service/space_to_batch_converter.cc`), whose decisions these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.ir import Atom, Op, Program, Value
from meshwright.simulate.library import is_elementwise
from meshwright.simulate.unit import SAME_MEMORY

PARTS = 8
"""Parts of the dim that is cut."""

_PARTS = frozenset({"slice", "split"})

_RENAMES = frozenset({"copy", "name", "optimization_barrier", "stop_gradient", "tag"})
"""Ops that hand on what they read as it is."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How images are cut.

    batch, space, feature: positions of those dims; space is the one that is cut.
    extent: of a part along it, what fills up the last one included.
    """

    batch: int
    space: int
    feature: int
    extent: int

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of images that are cut so."""
        cut = list(shape)
        cut[self.batch] *= PARTS
        cut[self.space] = self.extent
        return tuple(cut)

    def is_exact(self, shape: Sequence[int]) -> bool:
        """Whether the parts are no more than the whole."""
        return self.extent * PARTS == shape[self.space]

    def moved(self, order: Sequence[int]) -> Cut:
        """The same of a transpose."""
        dims = self.batch, self.space, self.feature
        return Cut(*(order.index(d) for d in dims), self.extent)


@dataclass(frozen=True, slots=True)
class Window:
    """A convolution along the last dim of space.

    image: its operand's dims as a cut of the whole; made: those of its result.
    kernel: extent of the window, stretched where it is; halo: pixels that a part needs
    of its neighbours.
    """

    image: Cut
    made: Cut
    kernel: int
    stride: int
    low: int
    high: int
    stuffing: int
    is_stretched_kernel: bool

    @classmethod
    def of(cls, op: Op) -> Window:
        """That of a `conv_general_dilated`."""
        params: Any = op.params
        numbers = params["dimension_numbers"]
        lhs, rhs, out = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
        low, high = params["padding"][-1]
        kernel, dilation = op.operands[1].shape[rhs[-1]], params["rhs_dilation"][-1]
        made = op.results[0].shape[out[-1]]
        return cls(
            Cut(lhs[0], lhs[-1], lhs[1], op.operands[0].shape[lhs[-1]]),
            Cut(out[0], out[-1], out[1], made),
            (kernel - 1) * dilation + 1,
            params["window_strides"][-1],
            low,
            high,
            params["lhs_dilation"][-1],
            dilation > 1 and kernel >= made,
        )

    @property
    def span(self) -> int:
        """Pixels over which the window goes."""
        return self.image.extent + self.high + (self.low if self.stuffing == 1 else 0)

    @property
    def _overlap(self) -> int:
        return self.kernel - (self.stuffing == 1 or self.stuffing != self.low)

    @property
    def halo(self) -> int:
        """Pixels of its neighbours that a part needs."""
        return self._overlap // self.stuffing

    def part(self) -> int:
        """The least extent of a part of the operand."""
        each = -(-self.made.extent // PARTS)
        return -(-each // self.stuffing) * self.stride

    def made_of(self, part: int) -> int:
        """What it makes along the dim of a part with its seams."""
        if self.stuffing == 1:
            return (part - self.kernel) // self.stride + 1
        low = self.low if self.low != self.stuffing else 0
        high = self._overlap % self.stuffing if self.low else self.stuffing - 1
        return (part - 1) * self.stuffing + 1 + low + high - self.kernel + 1

    def is_suitable(self, num_images: int, most: int) -> bool:
        """Whether it may be cut: few images, seams within the next part, and alike."""
        parts = -(-self.span // PARTS)
        if num_images > most or self.halo > parts or self.is_stretched_kernel:
            return False
        if self.stuffing == 1:
            return True
        if self.stride != 1 or (self.low == 0 and self.kernel != 1):
            return False
        if self.low == self.stuffing:
            return self.span >= 3 * PARTS
        return self.low in (0, self.stuffing - 1)


@dataclass(frozen=True, slots=True)
class Operands:
    """What a convolution reads of images that are cut, by operand.

    Parts with their seams; for the gradient of a kernel, as many copies of parts, each
    moved by one pixel, as the kernel has pixels.
    """

    cuts: Mapping[int, Cut]
    copies: int = 0


class Cuts:
    """Those of a program.

    of: by value that is only there cut. read: by convolution what it reads.
    continued: values that are read as they are cut.
    """

    def __init__(self, program: Program, most: int) -> None:
        self.of: dict[Value, Cut] = {}
        self.read: dict[Op, Operands] = {}
        self.continued: set[Atom] = set()
        self._most = most
        self._spread: dict[Atom, Op] = {}
        for op in program.ops:
            if op.kind == "conv_general_dilated":
                self._convolution(op)
            elif op.kind == "broadcast_in_dim":
                self._spread[op.results[0]] = op
            elif self.of:
                cut = self._handed_on(op)
                if cut is not None:
                    self.of |= dict.fromkeys(op.results, cut)
                    if op.kind not in _PARTS:
                        self.continued.update(op.operands)

    def cut(self, atom: Atom) -> Cut | None:
        """How an atom is cut, if it is."""
        return self.of.get(atom) if isinstance(atom, Value) else None

    def is_same(self, atom: Atom, dim: int) -> bool:
        """Whether all elements along a dim are the same."""
        spread = self._spread.get(atom)
        if atom.shape[dim] == 1 or spread is None:
            return atom.shape[dim] == 1
        dims: Any = spread.params.get("broadcast_dimensions", ())
        read = spread.operands[0].shape
        return dim not in dims or read[list(dims).index(dim)] == 1

    def source(self, atom: Value) -> Value:
        """What an atom repeats, else itself."""
        spread = self._spread.get(atom)
        read = atom if spread is None else spread.operands[0]
        return read if isinstance(read, Value) else atom

    def _convolution(self, op: Op) -> None:
        params: Any = op.params
        window, image = Window.of(op), op.operands[0]
        if params.get("batch_group_count", 1) != 1:
            return
        if not window.is_suitable(image.shape[window.image.batch], self._most):
            self._kernel_gradient(op, window)
            return
        cut = self.cut(image)
        if cut is not None and replace(cut, extent=0) == replace(
            window.image, extent=0
        ):
            part = _next_part(window, cut.extent)
        elif window.span >= 2 * PARTS:
            part = _first_part(window)
        else:
            return
        self.read[op] = Operands({0: replace(window.image, extent=part)})
        made = window.made_of(part)
        self.of[op.results[0]] = replace(window.made, extent=made)

    def _kernel_gradient(self, op: Op, window: Window) -> None:
        """Of a kernel: images are what is summed over, and count as features."""
        params: Any = op.params
        numbers = params["dimension_numbers"]
        specs = numbers.lhs_spec, numbers.rhs_spec
        wanted = [(spec[1], spec[-1]) for spec in specs]
        if window.stride != 1 or window.stuffing != 1:
            return
        found = [self.cut(v) for v in op.operands]
        for cut, dims in zip(found, wanted, strict=True):
            if cut is not None and (cut.batch, cut.space) != dims:
                return
        if params.get("feature_group_count", 1) != 1 or found == [None, None]:
            return
        dilation = params["rhs_dilation"][-1]
        images, made = found
        part = made.extent * dilation if made is not None else 0
        if images is not None and made is None:
            part = images.extent
        elif images is not None and images.extent > part:
            return
        self.read[op] = Operands(
            {
                0: Cut(*wanted[0], numbers.lhs_spec[0], part),
                1: Cut(*wanted[1], numbers.rhs_spec[0], -(-part // dilation)),
            },
            op.results[0].shape[numbers.out_spec[-1]],
        )

    def _handed_on(self, op: Op) -> Cut | None:
        """How the result of what is no convolution is cut."""
        if op.kind in _RENAMES:
            return self.cut(op.operands[0])
        if is_elementwise(op) and op.kind not in SAME_MEMORY:
            return self._elementwise(op)
        rule = _MOVES.get(op.kind)
        first = self.cut(op.operands[0]) if op.operands else None
        return rule(self, op, first) if rule is not None and first is not None else None

    def _elementwise(self, op: Op) -> Cut | None:
        """As its operands, of which all are cut that have all dims; parts the largest.

        A device's own part of something is no such op, so shapes are compared.
        """
        shape = op.results[0].shape
        widest: Cut | None = None
        for operand in op.operands:
            if not operand.shape:
                continue
            if len(operand.shape) != len(shape):
                return None
            cut = self.cut(operand)
            if cut is None:
                continue
            if operand.shape != shape or not _fits(widest, cut):
                return None
            if widest is None or cut.extent > widest.extent:
                widest = cut
        others = (v for v in op.operands if v.shape and self.cut(v) is None)
        if widest is None or not all(self.is_same(v, widest.space) for v in others):
            return None
        return widest

    def joined(self, op: Op, first: Cut) -> Cut | None:
        """Of parts alike in all dims, joined in none that is cut."""
        alike = all(
            v.shape == op.operands[0].shape and self.cut(v) == first
            for v in op.operands
        )
        free = op.params["dimension"] not in (first.batch, first.space)
        return first if alike and free else None


def _fits(known: Cut | None, cut: Cut) -> bool:
    return known is None or (known.batch, known.space) == (cut.batch, cut.space)


def _first_part(window: Window) -> int:
    """The extent of a part, seams included, of images that come whole."""
    part = window.part()
    while part * PARTS < window.span:
        part += window.stride
    return part + window.halo


def _next_part(window: Window, extent: int) -> int:
    """The extent of a part, seams included, of images whose parts have an extent."""
    part, halo = window.part(), window.halo
    while part * PARTS + halo < window.span or part < halo - window.low:
        part += window.stride
    if part < extent and extent % window.stride == 0 and window.stuffing == 1:
        # What a part has beyond what it needs serves as a seam.
        seam = window.kernel - window.stride - part % window.stride
        return extent + max(seam, 0)
    return part + halo


def _joined(cuts: Cuts, op: Op, first: Cut) -> Cut | None:
    return cuts.joined(op, first)


def _part(_: Cuts, op: Op, first: Cut) -> Cut | None:
    (operand,), results = op.operands, op.results
    held = [first.batch, first.space]
    whole = [operand.shape[d] for d in held]
    return first if all([v.shape[d] for d in held] == whole for v in results) else None


def _padded(_: Cuts, op: Op, first: Cut) -> Cut | None:
    config: Any = op.params["padding_config"]
    return None if any(config[first.batch] + config[first.space]) else first


def _reversed(_: Cuts, op: Op, first: Cut) -> Cut | None:
    dims: Any = op.params["dimensions"]
    return None if first.batch in dims or first.space in dims else first


def _transposed(_: Cuts, op: Op, first: Cut) -> Cut | None:
    order: Any = op.params["permutation"]
    return first.moved(list(order))


_MOVES: Mapping[str, Callable[[Cuts, Op, Cut], Cut | None]] = {
    "concatenate": _joined,
    "pad": _padded,
    "rev": _reversed,
    "slice": _part,
    "split": _part,
    "transpose": _transposed,
}

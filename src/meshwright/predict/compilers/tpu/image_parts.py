"""What an op does to images that are cut in space into parts.

Each part counts as an image of its own, and the last one is filled up. A convolution
then needs the pixels next to a part as well, its seams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.program.ir import Op

PARTS = 8
"""Into so many the TPU compiler cuts."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How images are cut.

    batch, space, feature: positions of those dims; space is the one that is cut.
    extent: of a part along it.
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

    def is_along(self, other: Cut) -> bool:
        """Whether both cut the same dim into parts of the same other."""
        return (self.batch, self.space) == (other.batch, other.space)


@dataclass(frozen=True, slots=True)
class Window:
    """A convolution along the last dim of space.

    image, made: the dims of its operand and its result, as if the whole were one part.
    kernel: extent, with the gaps of a dilated one. stride; low, high: padding.
    stuffing: pixels that one of the operand becomes, the others zeros.
    is_image: whether the kernel is larger than the result: images, for its gradient.
    """

    image: Cut
    made: Cut
    kernel: int
    stride: int
    low: int
    high: int
    stuffing: int
    is_image: bool

    @classmethod
    def of(cls, op: Op) -> Window:
        """That of a `conv_general_dilated`."""
        params: Any = op.params
        numbers = params["dimension_numbers"]
        (lhs, *_, x), (out, *_, y) = numbers.lhs_spec, numbers.out_spec
        kernel = op.operands[1].shape[numbers.rhs_spec[-1]]
        made, dilation = op.results[0].shape[y], params["rhs_dilation"][-1]
        low, high = params["padding"][-1]
        return cls(
            Cut(lhs, x, numbers.lhs_spec[1], op.operands[0].shape[x]),
            Cut(out, y, numbers.out_spec[1], made),
            (kernel - 1) * dilation + 1,
            params["window_strides"][-1],
            low,
            high,
            params["lhs_dilation"][-1],
            dilation > 1 and kernel >= made,
        )

    @property
    def span(self) -> int:
        """Pixels over which the kernel goes."""
        return self.image.extent + self.high + (self.low if self.stuffing == 1 else 0)

    @property
    def _overlap(self) -> int:
        return self.kernel - (self.stuffing == 1 or self.stuffing != self.low)

    @property
    def seams(self) -> int:
        """Pixels that a part needs beside its own."""
        return self._overlap // self.stuffing

    def made_of(self, part: int) -> int:
        """Pixels made of a part with its seams."""
        if self.stuffing == 1:
            return (part - self.kernel) // self.stride + 1
        low = self.low if self.low != self.stuffing else 0
        high = self._overlap % self.stuffing if self.low else self.stuffing - 1
        return (part - 1) * self.stuffing + low + high - self.kernel + 2

    @property
    def is_cut(self) -> bool:
        """Whether images can be: seams lie within the next part, and parts are alike.

        Zeros that are stuffed in must come to lie alike in all parts.
        """
        if self.is_image or self.seams > -(-self.span // PARTS):
            return False
        if self.stuffing == 1:
            return True
        if self.stride != 1 or (self.low == 0 and self.kernel != 1):
            return False
        if self.low == self.stuffing:
            return self.span >= 3 * PARTS
        return self.low in (0, self.stuffing - 1)

    def first_part(self) -> Cut | None:
        """Parts with seams of images that come whole; none if they are too small."""
        part = self._part
        while part * PARTS < self.span:
            part += self.stride
        if self.span < 2 * PARTS:
            return None
        return replace(self.image, extent=part + self.seams)

    def next_part(self, extent: int) -> Cut:
        """Parts with seams of parts of an extent, of which the last has room for one."""
        part, seams = self._part, self.seams
        while part * PARTS + seams < self.span or part < seams - self.low:
            part += self.stride
        if part < extent and extent % self.stride == 0 and self.stuffing == 1:
            seams = max(self.kernel - self.stride, 0)
            part = extent
        return replace(self.image, extent=part + seams)

    @property
    def _part(self) -> int:
        """Pixels of the operand for an equal part of the result."""
        each = -(-self.made.extent // PARTS)
        return -(-each // self.stuffing) * self.stride


def moved(op: Op, cuts: Sequence[Cut | None]) -> Cut | None:
    """How an op that moves images hands them on cut, if it does; cuts: of its operands."""
    rule, first = _MOVES.get(op.kind), cuts[0] if cuts else None
    return rule(op, first, cuts) if rule is not None and first is not None else None


_Cuts = Sequence[Cut | None]


def _joined(op: Op, cut: Cut, cuts: _Cuts) -> Cut | None:
    """Only of parts that are alike in all dims."""
    alike = len({v.shape for v in op.operands}) == len(set(cuts)) == 1
    return (
        cut if alike and op.params["dimension"] not in (cut.batch, cut.space) else None
    )


def _taken(op: Op, cut: Cut, cuts: _Cuts) -> Cut | None:
    del cuts
    whole, dims = op.operands[0].shape, (cut.batch, cut.space)
    return (
        cut if all(v.shape[d] == whole[d] for v in op.results for d in dims) else None
    )


def _padded(op: Op, cut: Cut, cuts: _Cuts) -> Cut | None:
    del cuts
    config: Any = op.params["padding_config"]
    return None if any((*config[cut.batch], *config[cut.space])) else cut


def _reversed(op: Op, cut: Cut, cuts: _Cuts) -> Cut | None:
    del cuts
    dims: Any = op.params["dimensions"]
    return None if cut.batch in dims or cut.space in dims else cut


def _transposed(op: Op, cut: Cut, cuts: _Cuts) -> Cut | None:
    del cuts
    order: Any = op.params["permutation"]
    dims = (order.index(d) for d in (cut.batch, cut.space, cut.feature))
    return Cut(*dims, extent=cut.extent)


_MOVES: Mapping[str, Callable[[Op, Cut, _Cuts], Cut | None]] = {
    "concatenate": _joined,
    "pad": _padded,
    "rev": _reversed,
    "slice": _taken,
    "split": _taken,
    "transpose": _transposed,
}

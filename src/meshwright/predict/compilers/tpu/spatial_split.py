"""Images split in space into parts, and the splits of ops on such parts.

Each part counts as an image of its own; the last part is padded. A convolution also
needs the pixels next to a part, its halo (`SpaceToBatchConverter` in XLA).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.program.ir import Op

PARTS = 8
"""Number of parts into which the TPU compiler splits an image."""


@dataclass(frozen=True, slots=True)
class SpatialSplit:
    """How the images of a batch are split into parts along one spatial dim.

    batch, space, feature: positions of these dims in the array; `space` is the split dim.
    extent: pixels of one part along the split dim.
    """

    batch: int
    space: int
    feature: int
    extent: int

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of an array after the split: more images, each of them smaller."""
        split = list(shape)
        split[self.batch] *= PARTS
        split[self.space] = self.extent
        return tuple(split)

    def is_along(self, other: SpatialSplit) -> bool:
        """Whether two splits have the same split dim and the same batch dim."""
        return (self.batch, self.space) == (other.batch, other.space)


@dataclass(frozen=True, slots=True)
class Window:
    """The numbers of a convolution along its last spatial dim, the one that is split.

    image, made: dims and extent of its operand and of its result, as if each were one part.
    kernel: pixels of the window, with dilation. stride: pixels between two windows.
    low, high: padding at both ends. base_dilation: distance of two pixels of the operand,
        with zeros in between.
    is_image: whether the kernel is larger than the result. This is so in the gradient of a
        kernel, where the operand called kernel is a batch of images.
    """

    image: SpatialSplit
    made: SpatialSplit
    kernel: int
    stride: int
    low: int
    high: int
    base_dilation: int
    is_image: bool

    @classmethod
    def of(cls, op: Op) -> Window:
        """The numbers of a `conv_general_dilated` op along its last spatial dim."""
        params: Any = op.params
        numbers = params["dimension_numbers"]
        (lhs, *_, x), (out, *_, y) = numbers.lhs_spec, numbers.out_spec
        kernel = op.operands[1].shape[numbers.rhs_spec[-1]]
        made, dilation = op.results[0].shape[y], params["rhs_dilation"][-1]
        low, high = params["padding"][-1]
        return cls(
            image=SpatialSplit(lhs, x, numbers.lhs_spec[1], op.operands[0].shape[x]),
            made=SpatialSplit(out, y, numbers.out_spec[1], made),
            kernel=(kernel - 1) * dilation + 1,
            stride=params["window_strides"][-1],
            low=low,
            high=high,
            base_dilation=params["lhs_dilation"][-1],
            is_image=dilation > 1 and kernel >= made,
        )

    @property
    def span(self) -> int:
        """Pixels over which the window slides, padding included."""
        low = self.low if self.base_dilation == 1 else 0
        return self.image.extent + low + self.high

    @property
    def _overlap(self) -> int:
        return self.kernel - (self.base_dilation == 1 or self.base_dilation != self.low)

    @property
    def halo(self) -> int:
        """Pixels of the next part that the window needs at the end of a part."""
        return self._overlap // self.base_dilation

    def made_of(self, part: int) -> int:
        """Pixels of the result that are computed from `part` pixels, the halo included."""
        if self.base_dilation == 1:
            return (part - self.kernel) // self.stride + 1
        low = self.low if self.low != self.base_dilation else 0
        high = (self._overlap if self.low else -1) % self.base_dilation
        return (part - 1) * self.base_dilation + low + high - self.kernel + 2

    @property
    def is_splittable(self) -> bool:
        """Whether images can be split into equal parts whose halos lie in the next part.

        With base dilation the zeros must be at the same positions in all parts.
        """
        if self.is_image or self.halo > -(-self.span // PARTS):
            return False
        if self.base_dilation == 1:
            return True
        if self.stride != 1 or (self.low == 0 and self.kernel != 1):
            return False
        if self.low == self.base_dilation:
            return self.span >= 3 * PARTS
        return self.low in (0, self.base_dilation - 1)

    def first_part(self) -> SpatialSplit | None:
        """The split, halos included, of whole images; `None` if they are too small."""
        part = self._part
        while part * PARTS < self.span:
            part += self.stride
        if self.span < 2 * PARTS:
            return None
        return replace(self.image, extent=part + self.halo)

    def next_part(self, extent: int) -> SpatialSplit:
        """The split, halos included, of images that an earlier op computed in parts.

        extent: pixels of the parts that the earlier op computed.
        """
        part, halo = self._part, self.halo
        while part * PARTS + halo < self.span or part < halo - self.low:
            part += self.stride
        if part < extent and extent % self.stride == 0 and self.base_dilation == 1:
            halo = max(self.kernel - self.stride, 0)
            part = extent
        return replace(self.image, extent=part + halo)

    @property
    def _part(self) -> int:
        """Pixels of the operand for one part of the result, without the halo."""
        each = -(-self.made.extent // PARTS)
        return -(-each // self.base_dilation) * self.stride


def split_of_result(
    op: Op, splits: Sequence[SpatialSplit | None]
) -> SpatialSplit | None:
    """The split of the result of an op that only moves elements, such as a transpose.

    splits: those of its operands. `None` if the op computes, or cannot work on parts.
    """
    split = splits[0] if splits else None
    if split is None:
        return None
    params: Any = op.params
    dims, whole = (split.batch, split.space), op.operands[0].shape
    if op.kind == "transpose":
        order = params["permutation"]
        moved = (order.index(d) for d in (*dims, split.feature))
        return SpatialSplit(*moved, extent=split.extent)
    if op.kind == "concatenate":
        alike = len({v.shape for v in op.operands}) == len(set(splits)) == 1
        is_kept = alike and params["dimension"] not in dims
    elif op.kind == "pad":
        is_kept = not any(any(params["padding_config"][d]) for d in dims)
    elif op.kind == "rev":
        is_kept = not set(dims) & set(params["dimensions"])
    else:
        is_taken = op.kind in {"slice", "split"}
        is_kept = is_taken and all(
            v.shape[d] == whole[d] for v in op.results for d in dims
        )
    return split if is_kept else None

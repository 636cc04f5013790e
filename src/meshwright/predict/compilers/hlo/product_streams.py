"""Operands that stream through a product, by the side of it that needs them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

from meshwright.predict.compilers.hlo.fusion import Fusion
from meshwright.predict.compilers.hlo.layouts import Layouts
from meshwright.predict.roofline.tiles import SUM_BYTES, Streams
from meshwright.program.ir import Value

_MAX_RATIO = 2.0
"""Times that an array besides the operands may be larger or smaller than the result: of
a vector or a sum nothing is read for each tile."""

_Sizes = tuple[tuple[Value, float], ...]


class StreamedOperands(NamedTuple):
    """Arrays that may stream through a product, each with its bytes.

    left, right: what an operand is computed from. others: what is read or written
    besides, `elements` large as the result is. widest: bytes of an element of what is
    written.
    """

    left: _Sizes
    right: _Sizes
    others: _Sizes
    elements: int
    widest: int

    def outside(self, on_chip: Collection[Value]) -> Streams:
        """The streams through main memory: arrays in scratch memory cost nothing."""
        left, right, others = (
            sum([size for value, size in side if value not in on_chip])
            for side in self[:3]
        )
        others /= self.elements
        return Streams(int(left), int(right), others, self.widest >= SUM_BYTES)


def streamed_operands(fusion: Fusion, layouts: Layouts) -> StreamedOperands | None:
    """The arrays that a product's operands, and its result, are computed from.

    An array counts as many elements as the operand at most, if that is a slice of it.
    `None` if the fusion is no matrix product.
    """
    if not fusion.sides:
        return None
    atoms = (*fusion.root.operands[:2], *fusion.root.results)
    sizes = [math.prod(v.shape) for v in atoms]
    if 0 in sizes:
        return None

    def moved(values: Iterable[Value], most: int) -> _Sizes:
        return tuple(
            [
                (v, min(prod(v.shape) * shares.get(v, 1.0), most) * layouts.itemsize(v))
                for v in values
            ]
        )

    prod, shares, (left, right) = math.prod, fusion.shares, fusion.sides
    result = sizes[2]
    low, high = result / _MAX_RATIO, result * _MAX_RATIO
    others = [
        v
        for v in (*fusion.reads, *fusion.writes)
        if low <= prod(v.shape) <= high and v not in left and v not in right
    ]
    return StreamedOperands(
        moved(left, sizes[0]),
        moved(right, sizes[1]),
        moved(others, math.ceil(high)),
        result,
        max(map(layouts.itemsize, fusion.writes), default=0),
    )

"""What streams through a product, by which side of it needs it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

from meshwright.predict.compilers.xla.fusion import Fusion
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.predict.roofline.tiles import SUM_BYTES, Streams
from meshwright.program.ir import Value

_ALIKE = 2.0
"""Times that an array beside the result may be larger or smaller than it: of a vector or a
sum nothing is read for each tile."""


class Sides(NamedTuple):
    """What may stream through a product: by value, its bytes in all.

    left, right: what an operand is computed from. beside: what is read or written beside
    its result, `elements` large; widest: bytes of an element of what is written.
    """

    left: tuple[tuple[Value, float], ...]
    right: tuple[tuple[Value, float], ...]
    beside: tuple[tuple[Value, float], ...]
    elements: int
    widest: int

    def streams(self, on_chip: Collection[Value]) -> Streams:
        """What does stream, for what is on the chip costs nothing."""
        left, right, beside = (
            sum([size for value, size in side if value not in on_chip])
            for side in self[:3]
        )
        beside /= self.elements
        return Streams(int(left), int(right), beside, self.widest >= SUM_BYTES)


def sides_of(unit: Fusion, layout: Layout) -> Sides | None:
    """Of a product what its operands are computed from, and what is beside its result.

    Of an array that an operand takes a part of, as much as the operand counts.
    """
    if not unit.sides:
        return None
    sizes = [math.prod(v.shape) for v in (*unit.root.operands[:2], *unit.root.results)]
    if 0 in sizes:
        return None

    def moved(values: Iterable[Value], most: int) -> tuple[tuple[Value, float], ...]:
        return tuple(
            [
                (v, min(prod(v.shape) * shares.get(v, 1.0), most) * layout.itemsize(v))
                for v in values
            ]
        )

    prod, shares, (left, right) = math.prod, unit.shares, unit.sides
    result = sizes[2]
    low, high = result / _ALIKE, result * _ALIKE
    like_it = [
        v
        for v in (*unit.reads, *unit.writes)
        if low <= prod(v.shape) <= high and v not in left and v not in right
    ]
    return Sides(
        moved(left, sizes[0]),
        moved(right, sizes[1]),
        moved(like_it, math.ceil(high)),
        result,
        max(map(layout.itemsize, unit.writes), default=0),
    )

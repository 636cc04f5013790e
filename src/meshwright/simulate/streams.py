"""What streams through a product, by which side of it needs it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from meshwright.cost.tiles import SUM_BYTES, Streams
from meshwright.ir import Value
from meshwright.simulate.layout import Layout
from meshwright.simulate.unit import Unit

_ALIKE = 2.0
"""Times that an array beside the result may be larger or smaller than it: of a vector or a
sum nothing is read for each tile."""


def streams_of(
    unit: Unit, on_chip: Collection[Value], layout: Layout
) -> Streams | None:
    """Of a product what its operands are computed from, and what is beside its result.

    Of an array that an operand takes a part of, as much as the operand counts. What is
    on the chip costs nothing.
    """
    sizes = [math.prod(v.shape) for v in (*unit.root.operands[:2], *unit.root.results)]
    if not unit.sides or 0 in sizes:
        return None

    def moved(values: Iterable[Value], most: int) -> float:
        return sum(
            min(math.prod(v.shape) * unit.shares.get(v, 1.0), most) * layout.itemsize(v)
            for v in values
            if v not in on_chip
        )

    left, right = (
        moved(side, most) for side, most in zip(unit.sides, sizes, strict=False)
    )
    operands = {v for side in unit.sides for v in side}
    result = sizes[2]
    beside = [v for v in (*unit.reads, *unit.writes) if v not in operands]
    like_it = [
        v for v in beside if result / _ALIKE <= math.prod(v.shape) <= result * _ALIKE
    ]
    widest = max(map(layout.itemsize, unit.writes), default=0)
    return Streams(
        int(left),
        int(right),
        moved(like_it, math.ceil(result * _ALIKE)) / result,
        widest >= SUM_BYTES,
    )

"""What streams through a product, by which side of it needs it."""

from __future__ import annotations

import math
from collections.abc import Collection

from meshwright.cost.tiles import SUM_BYTES, Streams
from meshwright.ir import Value
from meshwright.simulate.layout import Layout
from meshwright.simulate.unit import Kind, Unit

_ALIKE = 2.0
"""Times that an array may be larger or smaller than the side that it belongs to: halves of
an operand are read by themselves. Vectors beside it count nothing."""

_RESULT = 2
"""The side behind those of the two operands."""


def streams_of(
    unit: Unit, on_chip: Collection[Value], layout: Layout
) -> Streams | None:
    """Of a product what its operands are computed from, and what is beside its result.

    An array belongs to the side whose number of elements is nearest, and rather to an
    operand that is computed than to the result. What is on the chip costs nothing.
    """
    root = unit.root
    if unit.kind is not Kind.PRODUCT or root.kind != "dot_general":
        return None
    left, right, *_ = root.operands
    sizes = [math.prod(v.shape) for v in (left, right, root.results[0])]
    if 0 in sizes:
        return None
    moved, reads, shares = [0.0, 0.0, 0.0], unit.reads, unit.shares
    computed = [side for side in (0, 1) if root.operands[side] not in reads]
    for value in reads:
        if value in on_chip:
            continue
        size = math.prod(value.shape) * (shares.get(value, 1.0) if shares else 1)
        if value is left or value is right:
            side = int(value is not left)
        else:
            side = _side(size, sizes, computed)
        if side is not None:
            moved[side] += min(size, sizes[side]) * layout.itemsize(value)
    widest = 0
    for value in unit.writes:
        widest = max(widest, layout.itemsize(value))
        size = math.prod(value.shape)
        if value not in on_chip and _ratio(size, sizes[_RESULT]) <= _ALIKE:
            moved[_RESULT] += size * layout.itemsize(value)
    beside = moved[_RESULT] / sizes[_RESULT]
    return Streams(int(moved[0]), int(moved[1]), beside, widest >= SUM_BYTES)


def _side(size: float, sizes: list[int], computed: list[int]) -> int | None:
    """The side of the nearest size: an operand that is computed, or the result."""
    found, least = None, _ALIKE
    for side in (_RESULT, *reversed(computed)):
        ratio = _ratio(size, sizes[side])
        if ratio <= least:
            found, least = side, ratio
    return found


def _ratio(size: float, other: int) -> float:
    """How many times one is larger than the other."""
    return max(size / other, other / size) if size else math.inf

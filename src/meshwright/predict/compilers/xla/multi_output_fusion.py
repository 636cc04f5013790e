"""Units that run as one though each writes: fusions of several outputs.

Where one unit reads what another of the same shape has just written, or both read one
array, a compiler walks over the elements once and writes both results: the optimiser's
new moments beside the new weights, what a backward pass needs beside what comes next,
the sums of an array beside the array. What is alive does not change much by it, but
what moves does, so that time is counted over merged units and memory over single ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from meshwright.predict.compilers.xla.fusion import (
    TAKES_IN,
    Fusion,
    FusionKind,
    shares_of,
)
from meshwright.program.ir import Value
from meshwright.program.ops import OpWork

_Space = tuple[int, ...]


def merge_outputs(units: Sequence[Fusion]) -> tuple[Fusion, ...]:
    """The units with those that can walk together merged, in an order that works.

    A unit joins the last pass over its shape that writes or reads something it reads,
    if all else that it reads is there before that pass. No pass has two products.
    """
    passes: list[list[Fusion]] = []
    # The first pass that can read a value: the one that writes its elements, or the one
    # after the walk that sums it up.
    there: dict[Value, int] = {}
    # The last pass over a value's own shape that meets it.
    met: dict[Value, int] = {}
    for unit in units:
        space = _space(unit)
        number = None
        # A product takes nothing in that its own pass makes.
        if space is not None and unit.kind is not FusionKind.PRODUCT:
            number = _joined(unit, space, there, met)
        if number is None:
            number = len(passes)
            passes.append([unit])
        else:
            passes[number].append(unit)
        readable = number + 1 if unit.kind is FusionKind.REDUCTION else number
        for value in unit.writes:
            there[value] = readable
        if space is not None:
            for value in (*unit.reads, *unit.writes):
                if _extents(value.shape) == space and met.get(value, -1) < number:
                    met[value] = number
    return tuple([_merged(each) if len(each) > 1 else each[0] for each in passes])


def _joined(
    unit: Fusion, space: _Space, there: Mapping[Value, int], met: Mapping[Value, int]
) -> int | None:
    """The pass that a unit can be part of, if any."""
    number = -1
    ready = 0
    for value in unit.reads:
        if there.get(value, 0) > ready:
            ready = there[value]
        if met.get(value, -1) > number and _extents(value.shape) == space:
            number = met[value]
    return number if number >= ready else None


def _merged(units: Sequence[Fusion]) -> Fusion:
    """All in one, with a product at its root if there is one, else the first."""
    products = (u for u in units if u.kind is FusionKind.PRODUCT)
    first = next(products, units[0])
    work = OpWork(
        sum([unit.work.flops for unit in units]),
        sum([unit.work.transcendentals for unit in units]),
    )
    reads: dict[Value, None] = {}
    writes: dict[Value, None] = {}
    for unit in units:
        reads |= dict.fromkeys([v for v in unit.reads if v not in writes])
        writes |= dict.fromkeys(unit.writes)
    shares = {v: share for v, share in shares_of(units).items() if v in reads}
    return Fusion(
        first.root, first.kind, tuple(reads), tuple(writes), work,
        merged=tuple(units), shares=shares, sides=first.sides,
    )  # fmt: skip


def _space(unit: Fusion) -> _Space | None:
    """The extents over which a unit walks; None for what always runs alone."""
    if unit.kind not in TAKES_IN or unit.root.has_effect:
        return None
    if unit.kind is FusionKind.REDUCTION:
        return _extents(unit.root.operands[0].shape)
    return _extents(unit.root.results[0].shape)


@lru_cache(maxsize=4096)
def _extents(shape: tuple[int, ...]) -> _Space:
    return tuple(n for n in shape if n != 1)

"""Units that run as one though each writes: fusions of several outputs.

Where one unit reads what another of the same shape has just written, or both read one
array, a compiler walks over the elements once and writes both results: the optimiser's
new moments beside the new weights, what a backward pass needs beside what comes next,
the sums of an array beside the array. What is alive does not change much by it, but
what moves does, so that time is counted over merged units and memory over single ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshwright.ir import Value
from meshwright.rules import Work
from meshwright.simulate.unit import TAKES_IN, Kind, Unit

_Space = tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Pass:
    """Units that walk over one shape together, and what they read and write.

    elements: of what is written, that which the same walk can read again; a sum is not
    there before the walk ends.
    """

    space: _Space | None
    units: list[Unit] = field(default_factory=list)
    reads: dict[Value, None] = field(default_factory=dict)
    writes: dict[Value, None] = field(default_factory=dict)
    elements: set[Value] = field(default_factory=set)

    def add(self, unit: Unit) -> None:
        self.units.append(unit)
        self.reads |= dict.fromkeys(v for v in unit.reads if v not in self.writes)
        self.writes |= dict.fromkeys(unit.writes)
        if unit.kind is not Kind.REDUCTION:
            self.elements.update(unit.writes)

    def unit(self) -> Unit:
        """All in one, with a product at its root if there is one, else the first."""
        if len(self.units) == 1:
            return self.units[0]
        products = (u for u in self.units if u.kind is Kind.PRODUCT)
        first = next(products, self.units[0])
        work = sum((u.work for u in self.units), Work())
        reads, writes = tuple(self.reads), tuple(self.writes)
        parts = tuple(self.units)
        return Unit(first.root, first.kind, reads, writes, work, merged=parts)


def merge_outputs(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """The units with those that can walk together merged, in an order that works.

    A unit joins the last pass over its shape that writes or reads something it reads,
    if all else that it reads is there before that pass. No pass has two products.
    """
    passes: list[_Pass] = []
    made_in: dict[Value, int] = {}
    met_in: dict[Value, list[int]] = {}
    for unit in units:
        space = _space(unit)
        number = _joined(unit, space, passes, made_in, met_in)
        if number is None:
            number = len(passes)
            passes.append(_Pass(space))
        passes[number].add(unit)
        for value in unit.writes:
            made_in[value] = number
        if space is not None:
            for value in (*unit.reads, *unit.writes):
                met_in.setdefault(value, []).append(number)
    return tuple(each.unit() for each in passes)


def _joined(
    unit: Unit,
    space: _Space | None,
    passes: Sequence[_Pass],
    made_in: Mapping[Value, int],
    met_in: Mapping[Value, list[int]],
) -> int | None:
    """The pass that a unit can be part of, if any."""
    if space is None or unit.kind is Kind.PRODUCT:
        return None  # a product takes nothing in that its own pass makes
    # What a unit reads must be made before the pass, or by it.
    ready = max((made_in.get(v, -1) for v in unit.reads), default=-1)
    shared = (v for v in unit.reads if _extents(v.shape) == space)
    found = {n for v in shared for n in met_in.get(v, ()) if n >= ready}
    for number in sorted(found, reverse=True):
        into = passes[number]
        if into.space != space:
            continue
        if all(made_in.get(v, -1) < number or v in into.elements for v in unit.reads):
            return number
    return None


def _space(unit: Unit) -> _Space | None:
    """The extents over which a unit walks; None for what always runs alone."""
    if unit.kind not in TAKES_IN or unit.root.has_effect:
        return None
    if unit.kind is Kind.REDUCTION:
        return _extents(unit.root.operands[0].shape)
    return _extents(unit.root.results[0].shape)


def _extents(shape: tuple[int, ...]) -> _Space:
    return tuple(n for n in shape if n != 1)

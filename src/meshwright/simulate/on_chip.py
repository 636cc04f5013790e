"""Which values never leave the chip: made and read while scratch memory holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshwright.ir import Atom, Value
from meshwright.simulate.layout import Layout
from meshwright.simulate.unit import TAKES_IN, Unit

_KEPT_FOR_VALUES = 0.75
"""Share of scratch memory; the rest holds the windows of what streams through."""


def on_chip_values(
    units: Sequence[Unit], outputs: Iterable[Atom], layout: Layout, num_bytes: float
) -> frozenset[Value]:
    """The values that fit into `num_bytes` of scratch memory for as long as they live.

    Those that live shortest come first, since they spare as much traffic for less.
    What leaves the program, or passes through a loop, a collective or what else reads
    main memory by itself, stays outside.
    """
    made: dict[Value, int] = {}
    last: dict[Value, int] = {}
    outside = {v for v in outputs if isinstance(v, Value)}
    for index, unit in enumerate(units):
        if unit.kind not in TAKES_IN:
            outside.update(unit.reads)
            outside.update(unit.writes)
            continue
        for value in unit.writes:
            made[value] = index
        for value in unit.reads:
            last[value] = index
    room = num_bytes * _KEPT_FOR_VALUES
    waiting = [
        v for v in made if v in last and v not in outside and layout.size(v) <= room
    ]
    waiting.sort(key=lambda v: (last[v] - made[v], made[v]))
    used = [0] * len(units)
    kept: set[Value] = set()
    for value in waiting:
        start, end, size = made[value], last[value] + 1, layout.size(value)
        if max(used[start:end]) + size <= room:
            kept.add(value)
            for index in range(start, end):
                used[index] += size
    return frozenset(kept)


def keep_on_chip(
    units: Sequence[Unit], outputs: Iterable[Atom], layout: Layout, num_bytes: float
) -> None:
    """Note in a layout what never is in main memory, bodies of loops included."""
    kept = on_chip_values(units, outputs, layout, num_bytes)
    for unit in units:
        for body, inner in zip(unit.root.bodies, unit.bodies, strict=False):
            keep_on_chip(inner, body.outputs, layout, num_bytes)
    layout.on_chip |= kept

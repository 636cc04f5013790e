"""What is filled to be written into, with one number as a rule: a cache of keys.

A compiler fills it for each that writes into it. It grows there from a slice to the
whole, so that is done only when somebody reads it, and the slice is kept till then, but
no longer than till another comes in the slice's place.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.predict.compilers.xla.fusion import Fusion
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Value

FILLED = "dynamic_update_slice"
"""What writes into what it has filled, unless that was stored before."""


def filled_late(units: Sequence[Fusion]) -> tuple[Fusion, ...]:
    """The units, those that fill what they write moved before their first reader."""
    late = {u for u in units if u.root.kind == FILLED and u.in_place is None}
    if not late:
        return tuple(units)
    first = live_ranges((unit.reads, unit.writes) for unit in units).first_uses
    taken: dict[Value, int] = {}
    for index, unit in enumerate(units):
        updated = (unit.in_place,) if unit.root.kind == FILLED else ()
        for value in (*updated, *unit.replaces.values()):
            if value is not None:
                taken[value] = index
    waiting: dict[int, list[Fusion]] = {}
    for index, unit in enumerate(units):
        if unit in late:
            ends = [first.get(v, len(units)) for v in unit.writes]
            ends += [at for v in unit.reads if (at := taken.get(v, 0)) > index]
            waiting.setdefault(min(ends, default=index), []).append(unit)
    found: list[Fusion] = []
    for index, unit in enumerate(units):
        found += waiting.get(index, ())
        if unit not in late:
            found.append(unit)
    return (*found, *waiting.get(len(units), ()))

"""What a compiler stores without the padding of tiles, once a program does not fit.

XLA's rematerialisation does so before it makes anything again: what waits to be read is
copied into a form without padding, and back where it is read. So 144 features lie in 144
columns instead of 256 while they wait. The time of the copies is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from meshwright.predict.compilers.xla.fusion import Fusion
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.predict.memory.memory_curve import MemoryCurve
from meshwright.program.ir import Value

_LOOKS = 4
"""Times that the peak is looked at, which moves as values shrink."""

_WORTH = 0.1
"""Share of a value that its padding has to exceed to be worth a copy."""


def compacted(
    memory: MemoryCurve,
    layout: Layout,
    limit: float,
    units: Sequence[Fusion],
    fixed: Collection[Value],
    measure: Callable[[Layout], MemoryCurve],
) -> tuple[MemoryCurve, Layout]:
    """A program's memory where what wastes most is stored without padding, till it fits.

    memory: under `layout`; `measure` tells it of another. limit: bytes that a device
    has. fixed: values that come or go as they are. What a unit reads or writes has its
    padding then, and what loops carry always. What does not fit so either stays.
    """
    carried = {v for unit in units for pair in unit.replaces.items() for v in pair}
    waits = {v for unit in units for v in unit.writes} - carried - {*fixed}
    found, tried = memory, layout
    tight: set[Value] = set()
    for _ in range(_LOOKS):
        over = found.peak_bytes - limit
        if over <= 0:
            return found, tried
        at_work = _touched(units[found.peak]) if found.peak >= 0 else set[Value]()
        saved = {
            value: padding
            for value in found.alive
            if value in waits
            and value not in at_work
            and (padding := _padding(value, tried)) > _WORTH * tried.size(value)
        }
        if sum(saved.values()) < over:
            break
        for value in sorted(saved, key=saved.__getitem__, reverse=True):
            if over <= 0:
                break
            tight.add(value)
            over -= saved[value]
        tried = layout.without_padding(frozenset(tight))
        most = max(
            sum(_padding(v, layout) for v in tight & _touched(unit)) for unit in units
        )
        found = measure(tried)
        found = replace(found, extra_bytes=found.extra_bytes + most)
    return (found, tried) if found.peak_bytes <= limit else (memory, layout)


def _padding(value: Value, layout: Layout) -> int:
    """Bytes of it; what lies within another value has none."""
    return max(0, layout.size(value) - layout.num_bytes(value))


def _touched(unit: Fusion) -> set[Value]:
    """What a unit needs with padding; of what a loop cuts or stacks, a turn's slice."""
    op = unit.root
    stacked = [wire for wire in op.wires if wire.is_stacked]
    cut = {op.operands[w.operand] for w in stacked if w.operand is not None}
    made = {op.results[w.result] for w in stacked if w.result is not None}
    return {*unit.reads, *unit.writes} - cut - made

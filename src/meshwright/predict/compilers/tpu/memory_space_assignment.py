"""Which values never leave the chip: made and read while scratch memory holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.predict.compilers.xla.dataflow import stored_outputs
from meshwright.predict.compilers.xla.fusion import (
    REGROUP,
    TAKES_IN,
    Fusion,
    FusionKind,
)
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.predict.compilers.xla.loop_schedule import in_turn
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Atom, Value


@dataclass(frozen=True, slots=True, eq=False)
class Lives:
    """The lives of those values of one program or body that may stay on the chip.

    lives: value, first and last unit, and bytes; those that live shortest first, since
        they spare as much traffic for less. num_units: of the program.
    """

    lives: tuple[tuple[Value, int, int, int], ...]
    num_units: int

    def within(self, room: float) -> frozenset[Value]:
        """The values that fit into so many bytes for as long as they live."""
        used = np.zeros(self.num_units, np.int64)
        kept: list[Value] = []
        for value, start, last, size in self.lives:
            if size > room:
                continue
            beside = used[start : last + 1]
            if beside.max() + size <= room:
                kept.append(value)
                beside += size
        return frozenset(kept)


def lives_of(
    units: Sequence[Fusion],
    outputs: Iterable[Atom],
    layout: Layout,
    receives: bool = False,
) -> Lives:
    """How long the values live that units make and read.

    outputs: by the names under which they were made (`stored_outputs`).
    receives: whether what collectives write may be among them.
    What leaves the program, or passes through a loop, into a collective or what else
    reads main memory by itself, is none of them.
    """
    ranges = live_ranges((unit.reads, unit.writes) for unit in units)
    outside = {v for v in outputs if isinstance(v, Value)}
    for unit in units:
        if unit.kind not in TAKES_IN and unit.root.kind != REGROUP:
            outside.update(unit.reads)
            if not (receives and unit.kind is FusionKind.COLLECTIVE):
                outside.update(unit.writes)
    size = layout.size
    found = [
        (value, start, ranges.last_uses[value], size(value))
        for value, start in ranges.definitions.items()
        if value in ranges.last_uses and value not in outside
    ]
    found.sort(key=lambda each: (each[2] - each[1], each[1]))
    return Lives(tuple(found), len(units))


def all_lives(
    units: Sequence[Fusion],
    outputs: Iterable[Atom],
    layout: Layout,
    receives: bool = False,
) -> tuple[Lives, ...]:
    """Those of a program, and of the bodies of its loops in the order of a turn."""
    inner = [
        lives
        for unit in units
        for number, within in enumerate(unit.bodies)
        for lives in all_lives(
            in_turn(unit.root, number, within),
            stored_outputs(unit.root.bodies[number]),
            layout,
            receives,
        )
    ]
    return (lives_of(units, outputs, layout, receives), *inner)

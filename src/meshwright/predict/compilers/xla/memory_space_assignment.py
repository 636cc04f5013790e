"""Memory space assignment: values that stay in scratch memory while they are live.

XLA: `MemorySpaceAssignment`. Where scratch memory is a cache, the same analysis says what
the cache can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meshwright.predict.compilers.xla.dataflow import stored_outputs
from meshwright.predict.compilers.xla.fusion import (
    FUSES_OPERANDS,
    SPACE_TO_BATCH_COPY,
    Fusion,
    FusionKind,
)
from meshwright.predict.compilers.xla.layouts import Layouts
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Atom, Op, Value

BodyOrderFn = Callable[[Op, int, Sequence[Fusion]], Sequence[Fusion]]
"""The fusions of one body of an op, by its number, in the order in which they run."""


class OnChipRange(NamedTuple):
    """A value, the first and the last fusion of its live range, and its bytes."""

    value: Value
    start: int
    end: int
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class OnChipCandidates:
    """Values of one program or body that may stay in scratch memory.

    ranges: shortest live range first, since those save as much traffic for less.
    num_fusions: of the program.
    """

    ranges: tuple[OnChipRange, ...] = ()
    num_fusions: int = 0

    def fitting(self, scratch_bytes: float) -> frozenset[Value]:
        """The values that fit into so many bytes throughout their live ranges."""
        used = np.zeros(self.num_fusions, np.int64)
        kept: list[Value] = []
        for value, start, end, size in self.ranges:
            if size > scratch_bytes:
                continue
            meanwhile = used[start : end + 1]
            if meanwhile.max() + size <= scratch_bytes:
                kept.append(value)
                meanwhile += size
        return frozenset(kept)


NO_CANDIDATES = OnChipCandidates()


def on_chip_candidates(
    fusions: Sequence[Fusion],
    outputs: Iterable[Atom],
    layouts: Layouts,
    allows_received: bool = False,
) -> OnChipCandidates:
    """The values that fusions write and others read, without passing main memory.

    Not among them are outputs, and what a loop, a collective or another op reads from
    main memory by itself. outputs: as `stored_outputs` names them. allows_received:
    whether results of collectives may stay too.
    """
    ranges = live_ranges((fusion.reads, fusion.writes) for fusion in fusions)
    outside = {v for v in outputs if isinstance(v, Value)}
    for fusion in fusions:
        if fusion.kind in FUSES_OPERANDS or fusion.root.kind == SPACE_TO_BATCH_COPY:
            continue
        outside.update(fusion.reads)
        if not (allows_received and fusion.kind is FusionKind.COLLECTIVE):
            outside.update(fusion.writes)
    size = layouts.size
    found = [
        OnChipRange(value, start, ranges.last_uses[value], size(value))
        for value, start in ranges.definitions.items()
        if value in ranges.last_uses and value not in outside
    ]
    found.sort(key=lambda each: (each.end - each.start, each.start))
    return OnChipCandidates(tuple(found), len(fusions))


def candidates_with_bodies(
    fusions: Sequence[Fusion],
    outputs: Iterable[Atom],
    layouts: Layouts,
    body_order: BodyOrderFn,
    allows_received: bool = False,
) -> tuple[OnChipCandidates, ...]:
    """The candidates of a program, followed by those of each body of its loops."""
    inner = [
        candidates
        for fusion in fusions
        for number, body in enumerate(fusion.bodies)
        for candidates in candidates_with_bodies(
            body_order(fusion.root, number, body),
            stored_outputs(fusion.root.bodies[number]),
            layouts,
            body_order,
            allows_received,
        )
    ]
    return (on_chip_candidates(fusions, outputs, layouts, allows_received), *inner)

"""Memory space assignment: values that stay in scratch memory while they are live.

XLA: `MemorySpaceAssignment`. Where scratch memory is a cache, the same analysis says what
the cache can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from meshwright.predict.compilers.hlo.dataflow import stored_outputs
from meshwright.predict.compilers.hlo.fusion import (
    FUSES_OPERANDS,
    SPACE_TO_BATCH_COPY,
    Fusion,
    FusionKind,
)
from meshwright.predict.compilers.hlo.kernels import OnChipCandidates, OnChipRange
from meshwright.predict.compilers.hlo.layouts import Layouts
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Atom, Op, Value

BodyOrderFn = Callable[[Op, int, Sequence[Fusion]], Sequence[Fusion]]
"""The fusions of one body of an op, by its number, in the order in which they run."""


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

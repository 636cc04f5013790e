"""Memory space assignment: values that stay in scratch memory while they are live.

XLA: `MemorySpaceAssignment`. If scratch memory is a cache, the same analysis says what
the cache can hold.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from meshwright.predict.compilers.model.compilation import Compilation
from meshwright.predict.compilers.model.dataflow import stored_outputs
from meshwright.predict.compilers.model.fusion import (
    FUSES_OPERANDS,
    SPACE_TO_BATCH_COPY,
    Fusion,
    FusionKind,
)
from meshwright.predict.compilers.model.kernels import OnChipCandidates, OnChipRange
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Atom, Program, Value

PALLAS = "pallas_call"
"""Kind of op that is a kernel of the user's, which may read and write scratch memory."""

COPIES_PER_GAP = 8
"""Longest time for which a value waits in scratch memory, as a multiple of the time in
which main memory copies all that fits there (`xla_msa_max_overlap_to_mem_size_async_copy
_ratio` of libtpu 0.0.50). A value that waits longer is copied to main memory meanwhile."""


@dataclass(frozen=True, slots=True)
class MemorySpaceAssignment:
    """The pass that finds values that may stay in scratch memory.

    allows_received: whether results of collectives may stay there.
    """

    allows_received: bool

    def __call__(self, compilation: Compilation) -> Compilation:
        """The compilation with the values that may stay in scratch memory."""
        order = compilation.compiler.buffers.body_order

        def candidates(
            fusions: Sequence[Fusion], program: Program
        ) -> Iterator[OnChipCandidates]:
            outputs, layouts = stored_outputs(program), compilation.layouts
            yield on_chip_candidates(
                fusions, outputs, layouts, self.allows_received, allows_kernels=True
            )
            for fusion in fusions:
                op = fusion.root
                for n, body in enumerate(fusion.bodies):
                    yield from candidates(order(op, n, body), op.bodies[n])

        found = candidates(compilation.fusions, compilation.program)
        return replace(compilation, on_chip=tuple(found))


def on_chip_candidates(
    fusions: Sequence[Fusion],
    outputs: Iterable[Atom],
    layouts: Layouts,
    allows_received: bool = False,
    allows_kernels: bool = False,
) -> OnChipCandidates:
    """Values between two fusions that could stay in scratch memory.

    Outputs of the program are excluded, and so are values that a loop, a collective or
    another op has to read from main memory. outputs: as returned by `stored_outputs`.
    allows_received: whether results of collectives may stay, too.
    allows_kernels: whether operands and results of Pallas kernels may stay, too.
    """
    ranges = live_ranges((fusion.reads, fusion.writes) for fusion in fusions)
    outside = {v for v in outputs if isinstance(v, Value)}
    for fusion in fusions:
        if fusion.kind in FUSES_OPERANDS or fusion.root.kind == SPACE_TO_BATCH_COPY:
            continue
        if allows_kernels and fusion.root.kind == PALLAS:
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

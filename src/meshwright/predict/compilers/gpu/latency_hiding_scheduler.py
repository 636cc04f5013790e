"""Latency-hiding scheduler: the order in which the GPU compiler runs fusions.

XLA: `LatencyHidingScheduler` with `GpuLatencyEstimator`. It fills the schedule from the
end of the program to the beginning. While a collective waits for the fusions that hide
it, the scheduler places any other fusion whose consumers are all placed. So the
gradients of weights, which only the optimizer reads, are computed late in the backward
pass, and their operands stay live until then. One collective is in flight at a time
(`xla_gpu_experimental_parallel_collective_overlap_limit`), so that of many large
gradients only few wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.predict.compilers.xla.collective_combiner import (
    COMBINED,
    COMBINED_BYTES,
)
from meshwright.program.ir import Program, Value, num_bytes

ASYNC_COLLECTIVES = frozenset(
    {"all_gather", "all_reduce", "all_to_all", "permute", "reduce_scatter"}
)
"""Kinds of collectives that a GPU runs at the same time as kernels."""

_LATENCY = 5000
"""Time between the start and the end of any collective, in the scheduler's cost unit.

XLA's `GpuLatencyEstimator` uses abstract units, not seconds.
"""

_LIBRARY_CALL = 1000
"""Time of a convolution, which cuDNN computes, in the scheduler's cost unit."""


def hide_latency(fusions: Sequence[Fusion], program: Program) -> list[Fusion]:
    """Order fusions so that computation runs while a collective is in flight."""
    del program
    if not any(_is_async(fusion) for fusion in fusions):
        return list(fusions)
    makers = {v: i for i, fusion in enumerate(fusions) for v in fusion.writes}
    operands = _dependencies(fusions, makers)
    consumers = [0] * len(fusions)
    for needed in operands:
        for index in needed:
            consumers[index] += 1
    order: list[int] = []
    ready = [-i for i, count in enumerate(consumers) if not count]
    heapify(ready)
    blocked: list[int] = []  # collectives that may not be in flight with the others
    flight, now = _Flight(), 0
    while ready or flight.collectives:
        if flight.collectives and (not ready or flight.end <= now):
            placed, now = flight.collectives, max(now, flight.end)
            flight = _Flight()
            ready += blocked
            heapify(ready)
            blocked = []
        else:
            index = -heappop(ready)
            if _is_async(fusions[index]):
                if not flight.joined_by(index, fusions[index], now):
                    blocked.append(-index)
                continue
            placed = [index]
            now += _cost(fusions[index])
        order += placed
        for index in (needed for each in placed for needed in operands[each]):
            consumers[index] -= 1
            if not consumers[index]:
                heappush(ready, -index)
    assert len(order) == len(fusions), "fusions wait for each other"
    return [fusions[index] for index in reversed(order)]


@dataclass(slots=True)
class _Flight:
    """The collectives in flight: a single one, or small ones that run as one.

    collectives: indices of their fusions. end: time at which they are hidden.
    """

    collectives: list[int] = field(default_factory=list[int])
    kind: str = ""
    num_bytes: int = 0
    end: int = 0

    def joined_by(self, index: int, fusion: Fusion, now: int) -> bool:
        """Let a collective start its flight, unless others in flight keep it out."""
        kind, size = fusion.root.kind, sum(map(num_bytes, fusion.reads))
        if not self.collectives:
            self.kind, self.end = kind, now + _LATENCY
        elif (
            kind != self.kind
            or kind not in COMBINED
            or self.num_bytes + size > COMBINED_BYTES
        ):
            return False
        self.collectives.append(index)
        self.num_bytes += size
        return True


def _is_async(fusion: Fusion) -> bool:
    return fusion.root.kind in ASYNC_COLLECTIVES


def _cost(fusion: Fusion) -> int:
    """Time of a fusion, in the scheduler's cost unit (see `_LATENCY`).

    XLA estimates the time of a matrix product or a control-flow loop, but not of
    library calls: one product or loop hides a whole collective.
    """
    if fusion.kind is FusionKind.REGION:
        return _LATENCY
    if fusion.kind is not FusionKind.PRODUCT:
        return 1
    is_convolution = fusion.root.kind == "conv_general_dilated"
    return _LIBRARY_CALL if is_convolution else _LATENCY


def _dependencies(
    fusions: Sequence[Fusion], makers: dict[Value, int]
) -> list[list[int]]:
    """Indices of the fusions that each fusion depends on, since it reads their results.

    A fusion with an effect also depends on the previous fusion with an effect, so that
    these keep their order. makers: index of the fusion that writes each value.
    """
    found: list[list[int]] = []
    last_effect: int | None = None
    for index, fusion in enumerate(fusions):
        needed = dict.fromkeys(makers[v] for v in fusion.reads if v in makers)
        if fusion.root.has_effect:
            needed |= {} if last_effect is None else {last_effect: None}
            last_effect = index
        found.append(list(needed))
    return found

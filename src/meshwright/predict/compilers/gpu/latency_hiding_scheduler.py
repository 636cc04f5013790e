"""Latency-hiding scheduler: the order in which the GPU compiler runs fusions.

XLA: `LatencyHidingScheduler` with `GpuLatencyEstimator`. It fills the schedule from the
end of the program to the beginning. While a collective waits for the fusions that hide
it, the scheduler places any other fusion whose consumers are all placed. So the
gradients of weights, which only the optimizer reads, are computed late in the backward
pass, and their operands stay live until then.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.program.ir import Program, Value

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
    waiting = [0] * len(fusions)
    for needed in operands:
        for index in needed:
            waiting[index] += 1
    order: list[int] = []
    ready = [-i for i, count in enumerate(waiting) if not count]
    ready.sort()
    in_flight: list[tuple[int, int]] = []
    now = 0
    while ready or in_flight:
        if in_flight and (not ready or in_flight[0][0] <= now):
            end, index = heappop(in_flight)
            now = max(now, end)
            index = -index
        else:
            index = -heappop(ready)
            if _is_async(fusions[index]):
                heappush(in_flight, (now + _LATENCY, -index))
                continue
            now += _cost(fusions[index])
        order.append(index)
        for needed in operands[index]:
            waiting[needed] -= 1
            if not waiting[needed]:
                heappush(ready, -needed)
    assert len(order) == len(fusions), "fusions wait for each other"
    return [fusions[index] for index in reversed(order)]


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

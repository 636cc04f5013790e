"""The stage-slicing dynamic program: which layers run on which submesh.

It is Alpa's (Zheng et al., OSDI 2022, section 5.1). A pipeline of stages with times t_i
takes T = sum t_i + (B - 1) max t_j for B microbatches. For each bound on the slowest
stage the program finds the stages with the least sum of times; the best bound wins.
Bounds between the slowest stage that was found and the bound give the same stages, and
are left out. Devices count in units of the largest number that divides all sizes. A
stage has to fit into memory with the microbatches that its schedule keeps alive, which
depends on the number of later stages. In array shapes L is the number of layers, M of
submesh sizes, S of stages at most, D of devices.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from meshwright.errors import PlanError
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled


@dataclass(frozen=True, slots=True)
class SlicedStage:
    """Layers `first` to `end - 1` on a submesh.

    `size` is its index in the list of sizes.
    """

    first: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class StageTable:
    """Seconds of every possible stage for one microbatch.

    sizes: number of devices of each kind of submesh, [M].
    seconds: seconds of the fastest way to run layers `first` to `end - 1` on a submesh
        with `later` stages after it; infinite if none fits into memory, [M, S, L + 1, L
        + 1] over submesh, `later`, `first` and `end`.
    hop_s: seconds until a microbatch has reached a stage that starts at a layer, and
        its gradient has returned, [L].
    """

    sizes: tuple[int, ...]
    seconds: Floats
    hop_s: Floats

    @property
    def num_layers(self) -> int:
        """Number of layers into which the step is divided."""
        return len(self.hop_s)


def pipeline_s(
    table: StageTable, stages: Sequence[SlicedStage], num_microbatches: int
) -> float:
    """Seconds of a pipeline of these stages for a step of B microbatches.

    They are the sum of all stages' times and B - 1 times the slowest one. Infinite if a
    stage does not fit into memory.
    """
    times = _stage_s(table, stages)
    if not math.isfinite(sum(times)):
        return math.inf
    hops = sum(float(table.hop_s[each.first]) for each in stages[1:])
    return sum(times) + hops + (num_microbatches - 1) * max(times)


def slice_stages(
    table: StageTable, num_devices: int, num_microbatches: int
) -> tuple[SlicedStage, ...]:
    """The stages of the fastest pipeline that uses all devices.

    Raises `PlanError` if no pipeline fits into memory.
    """
    unit = math.gcd(num_devices, *table.sizes)
    sizes = np.array(table.sizes, np.int64) // unit
    found = partial(_least_sum, table, sizes, num_devices // unit)
    finite = np.unique(table.seconds[np.isfinite(table.seconds)]).tolist()
    low = bisect_left(finite, True, key=lambda bound: found(bound) is not None)
    best = found(finite[low]) if low < len(finite) else None
    if best is None:
        raise PlanError(
            f"no pipeline of {table.num_layers} layers on {num_devices} devices fits into"
            " their memory; recompute layers in the backward pass (jax.checkpoint), use"
            " more chips or chips with more memory, or a smaller batch"
        )
    best_s = pipeline_s(table, best, num_microbatches)
    high = bisect_right(finite, best_s / max(1, num_microbatches - 1)) - 1
    while high > low:
        stages = found(finite[high])
        assert stages is not None, "stages within a bound are within a larger one"
        seconds = pipeline_s(table, stages, num_microbatches)
        if seconds < best_s:
            best, best_s = stages, seconds
        # They have the least sum, so that faster stages are all below their slowest.
        high = bisect_left(finite, max(_stage_s(table, stages))) - 1
    return best


def _stage_s(table: StageTable, stages: Sequence[SlicedStage]) -> list[float]:
    """Seconds of each stage for one microbatch."""
    return [
        float(table.seconds[each.size, len(stages) - 1 - index, each.first, each.end])
        for index, each in enumerate(stages)
    ]


def _least_sum(
    table: StageTable, sizes: Ints, num_devices: int, bound: float
) -> tuple[SlicedStage, ...] | None:
    """The stages with the least sum of times, none of them slower than `bound` seconds.

    `None` if there are no such stages.
    """
    sums, ends, chosen = _fill(table.seconds, table.hop_s, sizes, num_devices, bound)
    count = int(np.argmin(sums[:, 0, num_devices]))
    if not math.isfinite(sums[count, 0, num_devices]):
        return None
    stages: list[SlicedStage] = []
    first, left = 0, num_devices
    while count > 0:
        end, size = int(ends[count, first, left]), int(chosen[count, first, left])
        stages.append(SlicedStage(first, end, size))
        first, left, count = end, left - int(sizes[size]), count - 1
    return tuple(stages)


@compiled
def _fill(
    seconds: Floats, hop_s: Floats, sizes: Ints, num_devices: int, bound: float
) -> tuple[Floats, Ints, Ints]:
    """Fill the tables of the dynamic program; each is [S + 1, L + 1, D + 1].

    `sums[s, k, d]` is the least sum of seconds of s stages with the layers from k on,
    on d devices. The other two tables say where the first of these stages ends, and the
    index of its submesh size.
    """
    most, layers = seconds.shape[1], seconds.shape[2] - 1
    shape = (most + 1, layers + 1, num_devices + 1)
    sums = np.full(shape, np.inf)
    ends = np.zeros(shape, np.int64)
    chosen = np.zeros(shape, np.int64)
    sums[0, layers, 0] = 0.0
    for count in range(1, most + 1):
        for first in range(layers - count, -1, -1):
            hop = hop_s[first] if first else 0.0
            for size in range(len(sizes)):
                for end in range(first + 1, layers + 1):
                    own = seconds[size, count - 1, first, end]
                    if own > bound:
                        continue
                    for left in range(sizes[size], num_devices + 1):
                        total = own + hop + sums[count - 1, end, left - sizes[size]]
                        if total < sums[count, first, left]:
                            sums[count, first, left] = total
                            ends[count, first, left] = end
                            chosen[count, first, left] = size
    return sums, ends, chosen

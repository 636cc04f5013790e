"""Clustering of blocks into layers, the units of which stages consist.

A block is an op of the forward pass or one iteration of a loop. Alpa's dynamic program
(Zheng et al., OSDI 2022, section 5.2) finds, among all cuts of the sequence of blocks
into layers of similar FLOPs, one with the fewest bytes between layers. Stages are then
cut between layers only.
"""

from collections.abc import Sequence

import numpy as np

from meshwright.errors import PlanError
from meshwright.features.pipeline.planning.blocks.step_blocks import StepBlocks
from meshwright.search.arrays import Floats, Ints

BALANCE = 0.5
"""Largest excess of a layer's FLOPs over the average, as a share (Alpa's default)."""

MOST_LAYERS = 48
"""Largest number of layers of a step; a loop over layers may have more, up to 64."""


def cluster(
    flops: Sequence[float],
    incoming_bytes: Sequence[float],
    num_layers: int,
    balance: float = BALANCE,
) -> tuple[int, ...]:
    """The index of the first block of each layer, for the best layers of similar work.

    The best layers minimize the largest number of bytes that enter a layer. Ties are
    decided by the total of these bytes, and then by the sum of squares of the layers'
    FLOPs.
    flops, incoming_bytes: numbers of each block, as in `Block`.
    balance: largest excess of a layer's FLOPs over the average, as a share. A layer may
        have as many as the largest block, in any case.
    """
    num_blocks = len(flops)
    if not 1 <= num_layers <= num_blocks:
        raise PlanError(
            f"{num_layers} layers of {num_blocks} blocks; wanted 1 to {num_blocks}"
        )
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(flops, float))])
    most = max((1 + balance) * sums[-1] / num_layers, max(flops))
    incoming = np.asarray(incoming_bytes, float).copy()
    incoming[0] = 0.0
    widest, _ = _best_cut(num_layers, sums, most, incoming, np.maximum)
    if widest == np.inf:
        # Uneven blocks leave no balanced cut: the limit is raised as far as need be.
        return cluster(flops, incoming_bytes, num_layers, 2 * balance + 0.1)
    costs = np.where(incoming <= widest, incoming, np.inf)
    # Less than a byte in all, so that squares only decide between equal bytes.
    weight = 1 / (4 * num_layers * max(most, 1.0) ** 2)
    return _best_cut(num_layers, sums, most, costs, np.add, weight)[1]


def _best_cut(
    num_layers: int,
    sums: Floats,
    most: float,
    incoming: Floats,
    combine: np.ufunc,
    weight: float = 0.0,
) -> tuple[float, tuple[int, ...]]:
    """The least cost of a cut of N blocks, and the first block of each of its layers.

    sums: FLOPs of all blocks before each block, [N + 1].
    most: largest number of FLOPs of a layer.
    incoming: cost of a layer that starts at each block, [N].
    combine: function of the cost of a layer and the cost of the layers before it (sum
        or maximum).
    weight: cost per square of a layer's FLOPs.
    """
    num = len(incoming)
    # Blocks from `lows[end]` on fit into one layer that ends before `end`.
    lows = np.searchsorted(sums, sums - most * (1 + 1e-12), side="left")
    cost = np.full(num + 1, np.inf)
    cost[0] = 0.0
    firsts: list[Ints] = []
    for _ in range(num_layers):
        after, first = np.full(num + 1, np.inf), np.zeros(num + 1, np.int64)
        for end in range(1, num + 1):
            low = int(lows[end])
            own = incoming[low:end] + weight * np.square(sums[end] - sums[low:end])
            options = combine(cost[low:end], own)
            index = int(np.argmin(options))
            after[end], first[end] = options[index], low + index
        cost = after
        firsts.append(first)
    starts: list[int] = []
    end = num
    for first in reversed(firsts):
        end = int(first[end])
        starts.append(end)
    return float(cost[num]), tuple(reversed(starts))


def layer_starts(step: StepBlocks) -> tuple[int, ...]:
    """The index of the first block of each layer."""
    blocks = step.blocks
    loops = sum(block.iteration > 0 for block in blocks)
    num = max(min(MOST_LAYERS, len(blocks)), min(loops + 1, 64))
    return cluster([b.flops for b in blocks], [b.incoming_bytes for b in blocks], num)

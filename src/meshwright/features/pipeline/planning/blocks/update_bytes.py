"""Working memory of a train step's update, divided among the blocks that need it.

The update of the whole step runs after all microbatches, and a stage runs only the part
for its own weights. So the bytes of a moment of the update belong to the blocks of the
values that are live then, and not to the block of the op that runs.
"""

from collections.abc import Callable, Sequence

import numpy as np

from meshwright.features.pipeline.planning.blocks.step_blocks import OpSite, StepPhase
from meshwright.program.analysis.live_ranges import LiveRanges
from meshwright.program.ir import Value
from meshwright.search.arrays import Floats


def update_bytes(
    lives: LiveRanges,
    sites: Sequence[OpSite],
    size_fn: Callable[[Value], float],
    working: Floats,
    num_blocks: int,
) -> tuple[Floats, Floats]:
    """The most bytes that each of N blocks needs at a moment of the update.

    The result is (bytes that add up over the blocks of a stage, bytes of which a stage
    needs the most of its blocks), each [N]. The first are those of stacks, which hold
    values of several blocks at once. Values of one block are alive one block after the
    other, and count for the block whose update runs.

    lives: live ranges over the fusions of a step.
    sites: blocks and phase of each fusion.
    size_fn: function from a value to its bytes on a device.
    working: bytes besides state and gradients while each fusion runs; 0 outside of the
        update.
    num_blocks: N, of which some may have no fusion.
    """
    stacks = np.zeros((len(sites) + 1, num_blocks))
    single = np.zeros(len(sites) + 1)
    for value, start in lives.definitions.items():
        site = sites[start]
        if site.phase is not StepPhase.UPDATE:
            continue
        share, end = size_fn(value) / site.count, lives.end(value) + 1
        if site.count == 1:
            single[start] += share
            single[end] -= share
        else:
            own = slice(site.first, site.first + site.count)
            stacks[start, own] += share
            stacks[end, own] -= share
    live = np.maximum(0.0, np.cumsum(stacks, axis=0)[:-1])
    alone = np.maximum(0.0, np.cumsum(single)[:-1])
    total = live.sum(axis=1) + alone
    scale = np.divide(working, total, out=np.zeros_like(total), where=total > 0)
    largest = np.zeros(num_blocks)
    for site, size in zip(sites, alone * scale, strict=True):
        own = slice(site.first, site.first + site.count)
        largest[own] = np.maximum(largest[own], size)
    return (live * scale[:, None]).max(axis=0, initial=0.0), largest

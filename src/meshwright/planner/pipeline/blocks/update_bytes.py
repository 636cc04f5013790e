"""Working memory of a train step's update, divided among the blocks that need it.

The update of the whole step runs after all microbatches, and a stage runs only the part
for its own weights. So the bytes of a moment of the update belong to the blocks of the
values that are live then, and not to the block of the op that runs.
"""

from collections.abc import Callable, Sequence

import numpy as np

from meshwright.planner.pipeline.blocks.step_blocks import OpSite, StepPhase
from meshwright.program.analysis.live_ranges import LiveRanges
from meshwright.program.ir import Value
from meshwright.search.arrays import Floats


def update_bytes(
    lives: LiveRanges,
    sites: Sequence[OpSite],
    size_fn: Callable[[Value], float],
    working: Floats,
    num_blocks: int,
) -> Floats:
    """The most bytes that each of N blocks needs at a moment of the update, [N].

    lives: live ranges over the fusions of a step.
    sites: blocks and phase of each fusion.
    size_fn: function from a value to its bytes on a device.
    working: bytes besides state and gradients while each fusion runs; 0 outside of the
        update.
    num_blocks: N, of which some may have no fusion.
    """
    changes = np.zeros((len(sites) + 1, num_blocks))
    for value, start in lives.definitions.items():
        site = sites[start]
        if site.phase is StepPhase.UPDATE:
            share = size_fn(value) / site.count
            own = slice(site.first, site.first + site.count)
            changes[start, own] += share
            changes[lives.end(value) + 1, own] -= share
    live = np.maximum(0.0, np.cumsum(changes, axis=0)[:-1])
    total = live.sum(axis=1, keepdims=True)
    shares = np.divide(live, total, out=np.zeros_like(live), where=total > 0)
    return (shares * working[:, None]).max(axis=0, initial=0.0)

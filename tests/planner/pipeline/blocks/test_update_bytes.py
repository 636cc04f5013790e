"""Working memory of updates: whose blocks it counts for."""

import numpy as np

from meshwright.planner.pipeline.blocks.step_blocks import OpSite, StepPhase
from meshwright.planner.pipeline.blocks.update_bytes import update_bytes
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Value


def size(value):
    return 4.0 * value.shape[0]


def test_bytes_of_an_update_belong_to_the_blocks_of_the_live_values():
    gradient, small, stack = (Value((n,), "float32") for n in (8, 2, 6))
    steps = [((), (gradient,)), ((), (small,)), ((gradient,), (stack,)), ((stack,), ())]
    sites = [
        OpSite(StepPhase.WEIGHT_GRADIENT, 1, 2),
        OpSite(StepPhase.UPDATE, 0, 1),
        OpSite(StepPhase.UPDATE, 1, 2),
        OpSite(StepPhase.UPDATE, 0, 1),
    ]
    # The last op is of block 0, and what is live then is of blocks 1 and 2.
    found = update_bytes(live_ranges(steps), sites, size, np.array([0, 8, 0, 24.0]), 4)
    assert found.tolist() == [8, 12, 12, 0]  # nothing runs in the last block


def test_a_moment_without_live_values_has_no_bytes():
    found = update_bytes(
        live_ranges([((), ())]),
        [OpSite(StepPhase.UPDATE, 0, 1)],
        size,
        np.array([9.0]),
        1,
    )
    assert found.tolist() == [0]

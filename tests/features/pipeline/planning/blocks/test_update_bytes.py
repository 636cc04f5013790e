"""Working memory of updates: whose blocks it counts for."""

import numpy as np

from meshwright.features.pipeline.planning.blocks.step_blocks import OpSite, StepPhase
from meshwright.features.pipeline.planning.blocks.update_bytes import update_bytes
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Value


def size(value):
    return 4.0 * value.shape[0]


def test_bytes_of_an_update_belong_to_the_blocks_of_the_live_stack():
    gradient, small, stack = (Value((n,), "float32") for n in (8, 2, 6))
    steps = [((), (gradient,)), ((), (small,)), ((gradient,), (stack,)), ((stack,), ())]
    sites = [
        OpSite(StepPhase.WEIGHT_GRADIENT, 1, 2),
        OpSite(StepPhase.UPDATE, 0, 1),
        OpSite(StepPhase.UPDATE, 1, 2),
        OpSite(StepPhase.UPDATE, 0, 1),
    ]
    # The last op is of block 0, and what is live then is of blocks 1 and 2.
    stacked, largest = update_bytes(
        live_ranges(steps), sites, size, np.array([0, 8, 0, 24.0]), 4
    )
    assert stacked.tolist() == [0, 12, 12, 0]  # nothing runs in the last block
    assert largest.tolist() == [8, 0, 0, 0]


def test_updates_of_one_layer_after_the_other_do_not_add_up():
    weights = [Value((2,), "float32") for _ in range(3)]
    steps = [step for w in weights for step in (((), (w,)), ((w,), ()))]
    sites = [OpSite(StepPhase.UPDATE, block, 1) for block in (0, 0, 1, 1, 2, 2)]
    working = np.array([8, 8, 24, 8, 8, 8.0])
    stacked, largest = update_bytes(live_ranges(steps), sites, size, working, 3)
    assert stacked.tolist() == [0, 0, 0]
    assert largest.tolist() == [8, 24, 8]


def test_a_moment_without_live_values_has_no_bytes():
    sites = [OpSite(StepPhase.UPDATE, 0, 1)]
    found = update_bytes(live_ranges([((), ())]), sites, size, np.array([9.0]), 1)
    assert [rows.tolist() for rows in found] == [[0], [0]]

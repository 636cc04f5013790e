"""Stage slicing, against all pipelines of small cases."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.features.pipeline.planning.stage_slicing import (
    SlicedStage,
    StageTable,
    pipeline_s,
    slice_stages,
)


def all_pipelines(num_layers, sizes, num_devices, first=0):
    """Every sequence of stages that has all layers and all devices."""
    if first == num_layers:
        if num_devices == 0:
            yield ()
        return
    for end, (index, size) in product(
        range(first + 1, num_layers + 1), enumerate(sizes)
    ):
        if size <= num_devices:
            for rest in all_pipelines(num_layers, sizes, num_devices - size, end):
                yield (SlicedStage(first, end, index), *rest)


def random_table(seed, num_layers, sizes, share):
    """Random times of stages, of which a share does not fit."""
    draw = np.random.default_rng(seed)
    shape = (len(sizes), num_layers, num_layers + 1, num_layers + 1)
    seconds = draw.uniform(0.5, 2.0, shape)
    # As in memory, more later stages make no stage fit that did not fit before.
    barred = np.maximum.accumulate(draw.uniform(size=shape) < share, axis=1)
    seconds = np.where(barred, np.inf, seconds[:, :1])
    return StageTable(sizes, seconds, draw.uniform(0, 0.5, num_layers))


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([1, 256]),
)
def test_slicing_equals_exhaustive_search(
    seed, layers, units, microbatches, share, unit
):
    sizes, devices = (unit, 2 * unit, 4 * unit), units * unit
    table = random_table(seed, layers, sizes, share)
    every = [
        pipeline_s(table, stages, microbatches)
        for stages in all_pipelines(layers, sizes, devices)
        if len(stages) <= layers
    ]
    least = min(every, default=math.inf)
    if least == math.inf:
        with pytest.raises(PlanError, match="no pipeline of"):
            slice_stages(table, devices, microbatches)
        return
    found = slice_stages(table, devices, microbatches)
    assert math.isclose(pipeline_s(table, found, microbatches), least)
    assert [s.first for s in found] == [0, *(s.end for s in found[:-1])]
    assert found[-1].end == layers
    assert sum(sizes[s.size] for s in found) == devices

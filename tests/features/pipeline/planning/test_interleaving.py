"""Interleaved pipelines: cuts against enumeration, memory, and when they are planned."""

from copy import copy
from dataclasses import replace
from itertools import combinations, pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright as mw
from meshwright.features.pipeline.batch_sizes import ResizableStep
from meshwright.features.pipeline.fastest_built import built_plan
from meshwright.features.pipeline.planning.interleaving import even_stages
from meshwright.features.pipeline.planning.pipeline_planner import PipelinePlanner
from meshwright.features.pipeline.planning.pipeline_task import PipelineTask
from meshwright.features.pipeline.planning.stage_slicing import StageTable
from meshwright.features.pipeline.schedules.generators import SCHEDULES
from meshwright.machine import load_machine
from tests.features.pipeline.planning.test_planning import (
    LAYERS,
    shape,
    train_step,
)

WIDTH = 256
"""Width and batch of the layers; at other widths another schedule is the fastest."""


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(4, 7), st.randoms(use_true_random=False))
def test_even_stages_equal_exhaustive_search(num_stages, num_layers, random):
    seconds = np.full((1, num_stages, num_layers + 1, num_layers + 1), np.inf)
    for later in range(num_stages):
        for first, end in combinations(range(num_layers + 1), 2):
            fits = random.random() < 0.9
            seconds[0, later, first, end] = random.random() if fits else np.inf

    def slowest(inner):
        cut = pairwise((0, *inner, num_layers))
        return max(seconds[0, num_stages - 1 - i, a, b] for i, (a, b) in enumerate(cut))

    inner = combinations(range(1, num_layers), num_stages - 1)
    best = min(map(slowest, inner))
    table = StageTable((1,), seconds, np.zeros(num_layers))
    found = even_stages(table, num_stages)
    if found is None:
        assert best == np.inf
    else:
        assert slowest([stage.first for stage in found[1:]]) == best


@pytest.fixture(scope="module")
def planner():
    params = ({"layers": shape(LAYERS, WIDTH, WIDTH), "head": shape(WIDTH, WIDTH)},)
    step = ResizableStep(train_step, (*params, shape(WIDTH, WIDTH)))
    machine = load_machine("v100", 2)
    task = PipelineTask("step", step.capture, step.batch, machine, 1e9, (2,), (1,))
    return PipelinePlanner(task)


def planned(planner, **options):
    """The best plan with other options of the task."""
    changed = copy(planner)
    changed.task = replace(planner.task, **options)
    return changed.best()


def test_interleaved_stages_are_planned_where_bubbles_cost_most(planner):
    # Two submeshes of one device, and two microbatches: a third of the step is bubble.
    plan = planner.best()
    assert plan.schedule_name == "interleaved"
    assert len(plan.stages) > plan.schedule.num_submeshes == 2
    assert [s.choice.first_device for s in plan.stages] == list(plan.schedule.placement)
    tried = dict(plan.tried)
    assert plan.step_time_s == tried.pop("interleaved")
    assert plan.step_time_s < min(s for s in tried.values() if isinstance(s, float))


def test_dual_pipe_v_is_planned_where_it_is_fastest(planner):
    plan = planned(planner, microbatches=(8,))
    assert plan.schedule_name == "dualpipev"
    assert plan.schedule.placement == (0, 1, 1, 0)
    tried = dict(plan.tried)
    assert plan.step_time_s == min(s for s in tried.values() if isinstance(s, float))


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_only_schedule_to_try_is_planned(planner, name):
    plan = planned(planner, schedule=name, microbatches=(4,))
    assert plan.schedule_name == name
    assert dict(plan.tried) == {name: plan.step_time_s}


def test_interleaved_stages_of_a_submesh_share_its_memory(planner):
    found = planner.best()
    peak = max(found.simulate().peak_bytes)
    less = planned(planner, limit_bytes=0.99 * peak)
    assert max(less.simulate().peak_bytes) <= 0.99 * peak


def test_a_found_interleaved_plan_runs_and_equals_the_step(planner):
    plan = built_plan(planner.task.capture_fn(planner.task.batch), planner.best())
    params = {
        "layers": jnp.linspace(-0.2, 0.2, LAYERS * WIDTH**2).reshape(LAYERS, WIDTH, -1),
        "head": jnp.eye(WIDTH),
    }
    step = mw.pipeline(train_step, plan)
    assert step.check(params, jnp.linspace(-1, 1, WIDTH**2).reshape(WIDTH, -1)).ok

"""Pauses of slices: rare, so that a step waits for each of them separately."""

from dataclasses import replace

import numpy as np
import pytest

import meshwright as mw
from meshwright.machine import Kind, Level, load_machine, machine
from meshwright.machine.placement import place_mesh
from meshwright.predict.estimate import estimate
from meshwright.predict.links.random_pauses import num_groups, waiting_s

LEVEL = Level("dcn", Kind.SWITCH, (64,), 1e9, 1e-5, pause_share=1e-3)


def test_one_group_waits_for_nobody():
    assert waiting_s(10.0, LEVEL, 1) == 0.0


def test_pauses_that_seldom_coincide_add_up():
    """A simulation agrees: each of 8 slices pauses for 0.2 s in one step of twenty."""
    rng, pause_s, chance = np.random.default_rng(0), 0.2, 0.005
    stops = rng.random((400_000, 8)) < chance
    lost_s = pause_s * (stops.any(1).mean() - stops[:, 0].mean())
    level = replace(LEVEL, pause_share=pause_s * chance / 10.0)
    assert waiting_s(10.0, level, 8) == pytest.approx(lost_s, rel=0.05)


def test_groups_are_what_a_level_connects():
    two = load_machine("tpu-v5e", 512)
    assert [num_groups(two, level) for level in two.levels] == [256, 2]


def product(x, w):
    return (x @ w).sum()


@pytest.fixture(scope="module")
def plans():
    """Steps of one sum across two slices, and of sums that stay inside their slices."""
    shapes = np.ones((4096, 64), np.float32), np.ones((64, 8), np.float32)
    mesh = {"slice": 2, "data": 256}
    across = mw.partition(product, mesh, [mw.shard({"x": 0}, "slice")])
    inside = mw.partition(product, mesh, [mw.shard({"x": 0}, "data")])
    return [_in_order(step.plan(*shapes)) for step in (across, inside)]


def _in_order(plan):
    """The simulated step with the first axis on slices; by cost it would lie inside."""
    two = load_machine("tpu-v5e", 512)
    placement = place_mesh(plan.decided.lowered.mesh, two)
    return estimate(plan.decided, two, placement=placement)


def test_only_a_step_that_synchronizes_across_slices_waits(plans):
    across, inside = plans
    level = machine("tpu-v5e", chips=512).levels[1]
    told = dict(across.breakdown)
    waiting = told.pop("waiting")
    filled = sum(s for name, s in told.items() if not name.endswith("hidden"))
    assert waiting == pytest.approx(filled * level.pause_share)
    assert across.step_time_s == pytest.approx(filled + waiting)
    assert "waiting" not in inside.breakdown


def test_by_cost_no_step_crosses_slices_that_need_not():
    shapes = np.ones((4096, 64), np.float32), np.ones((64, 8), np.float32)
    step = mw.partition(
        product, {"slice": 2, "data": 256}, [mw.shard({"x": 0}, "slice")]
    )
    plan = step.plan(*shapes).on("tpu-v5e")
    assert "waiting" not in plan.breakdown
    assert plan.figures.placement.startswith(
        "slice 2 of 16 x ici at stride 8, data 2 x dcn"
    )

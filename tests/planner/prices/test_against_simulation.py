"""The integer program's price of experts' plans against their simulated step."""

import pytest

import meshwright as mw
from meshwright.errors import MeshwrightError
from meshwright.machine import Mesh
from meshwright.partitioner.decide import decide
from meshwright.partitioner.lower import Gather
from meshwright.planner.candidates.expert_plans import expert_strategies
from meshwright.planner.candidates.meshes import meshes_of
from meshwright.planner.integer_program.projection import read_choices
from meshwright.predict.estimate import estimate
from tests.planner.programs import LARGE, SCANNED, space_of

BOUND = 0.12
"""Relative error of the priced computing of plans that cut the batch."""

STEP_BOUND = 0.15
"""Relative error of the priced step of plans that cut the batch."""


@pytest.mark.parametrize("machine", ["h100", "tpu-v5e"])
@pytest.mark.parametrize("program", [SCANNED, LARGE], ids=["scanned", "large"])
def test_a_priced_plan_takes_about_as_long_as_the_simulated_one(program, machine):
    """Also with stacks that loops fill, which the compiler copies."""
    space, mesh = space_of(program, machine), Mesh({"data": 8})
    priced = space.price(mesh)
    model, compute = priced.model, priced.builder.compute
    for name in ("data parallel", "ZeRO-3", "FSDP"):
        tactics = expert_strategies(mesh)[name]
        decided = decide(space.original, mesh, tactics, Gather.SHARED, space.graph)
        exact = estimate(decided, space.machine, donate_state=True)
        choices = read_choices(model, decided.work.state)
        computing = sum(
            each.runs * compute.seconds(each.node, own)[choice]
            for each, own, choice in zip(
                model.reduced_graph.classes, model.choices, choices, strict=False
            )
        )
        assert computing == pytest.approx(exact.breakdown["compute"], rel=BOUND)
        seconds = priced.pricer.finite_seconds(choices)
        assert seconds == pytest.approx(exact.step_time_s, rel=STEP_BOUND)


def test_a_mask_that_a_loop_computes_is_not_free_to_gather():
    """It has no bytes in memory, and a collective sends all of them."""
    space, mesh = space_of(SCANNED, "h100"), Mesh({"data": 8})
    model = space.price(mesh).model
    values, classes = space.graph.values, model.reduced_graph.classes
    layouts = space.op_prices.layouts
    recomputed = [
        pair
        for pair in model.pair_costs
        for value in [values[classes[pair.copy_key[0]].node.outs[pair.copy_key[1]][0]]]
        if value in layouts.recomputed
    ]
    assert recomputed
    assert all(pair.num_bytes for pair in recomputed)
    gathered_s = max(
        pair.seconds[pair.seconds < float("inf")].max() for pair in recomputed
    )
    assert (
        gathered_s > 64 * 1024 * 1024 / 1e12
    )  # bytes, and far more than the links' rate


@pytest.mark.parametrize("machine", ["h100", "tpu-v5e"])
@pytest.mark.parametrize("program", [SCANNED, LARGE], ids=["scanned", "large"])
def test_the_found_plan_is_at_least_as_fast_as_every_expert(program, machine):
    """Of all experts on all meshes, also those that the search did not simulate."""
    fn, args = program
    plan = mw.autoplan(fn, args, machine=machine, chips=8)
    space = space_of(program, machine)
    for mesh in meshes_of(space.machine):
        for tactics in expert_strategies(mesh).values():
            try:
                decided = decide(space.original, mesh, tactics, Gather.SHARED)
            except MeshwrightError:
                continue
            found = estimate(decided, space.machine, donate_state=True)
            assert plan.step_time_s <= found.step_time_s * (1 + 1e-9) or not found.fits

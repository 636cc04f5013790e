"""Residuals of `mw.linearize` against what the planner counts and chooses to save."""

import jax
import pytest

import meshwright as mw
from meshwright.machine import Mesh, load_machine
from meshwright.planner.integer_program.projection import read_choices
from meshwright.planner.recompute.forward_pass import ForwardPass
from meshwright.planner.recompute.saved_values import Residuals, recompute_within
from meshwright.planner.solve.space import Space
from meshwright.program.capture import capture
from meshwright.program.ir import num_bytes
from meshwright.program.rewrite.rematerialization import backward_start, residuals
from tests.planner.recompute.test_saved_values import (
    args,
    looped_loss,
    looped_step,
    loss,
    step,
)

SPACING = 2**50


def planned(train_step, given):
    """The priced step on one device, and the residuals that the planner sees in it."""
    captured = mw.partition(train_step, {"data": 1}).capture(*given)
    space = Space(captured, load_machine("tpu-v5e", None, 1))
    priced = space.price(Mesh({"data": 1}))
    choices = read_choices(priced.model, space.start(Mesh({"data": 1})).state)
    prices = space.op_prices
    return (priced, choices, prices), Residuals.of(
        ForwardPass(priced, choices, prices, SPACING)
    )


@pytest.mark.parametrize("share", [0.75, 0.5])
def test_layers_save_the_bytes_that_the_planner_predicts(share):
    given = args(layers=3)
    plan, seen = planned(step, given)
    now = seen.saved_bytes(seen.saved_by_default)
    found = recompute_within(*plan, (1 - share) * now, SPACING)
    assert found is not None
    wanted = seen.saved_bytes(seen.within(share * now))
    lean = mw.linearize(loss, *given, keep=found[0])
    assert lean.residual_bytes == pytest.approx(wanted, abs=64)  # a few scalars
    assert lean.residual_bytes <= share * mw.linearize(loss, *given).residual_bytes


def test_a_loop_of_layers_saves_about_the_bytes_that_the_planner_predicts():
    given = args(layers=3)
    plan, seen = planned(looped_step, given)
    full = mw.linearize(looped_loss, *given).residual_bytes
    now = seen.saved_bytes(seen.saved_by_default)
    assert full == pytest.approx(now, rel=0.05)
    found = recompute_within(*plan, 0.5 * now, SPACING)
    assert found is not None
    lean = mw.linearize(looped_loss, *given, keep=found[0]).residual_bytes
    wanted = seen.saved_bytes(seen.within(0.5 * now))
    assert lean == pytest.approx(wanted, rel=0.05)
    assert lean < 0.5 * full


def test_the_peak_of_jax_s_own_gradient_is_ours_and_the_first_cotangents():
    """The planner's boundary is where most bytes are live: behind the first cotangent."""
    given = args(layers=3)
    program = capture(jax.value_and_grad(loss), given).program
    found = residuals(program, backward_start(program))
    ours = mw.linearize(loss, *given).residual_bytes
    cotangent = num_bytes(program.inputs[-1])
    assert ours <= sum(map(num_bytes, found)) <= ours + cotangent

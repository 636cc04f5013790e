"""Plans of prefill and decoding over one copy of the weights, found together."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.app.phases import plan_phases
from meshwright.errors import PlanError, TacticError
from zoo import palm

MESH = {"x": 2, "y": 2}
SMALL = replace(palm.TINY, layers=1)
OPTIONS = {"machine": "tpu-v4", "mesh": MESH, "search": "experts", "budget_s": 60.0}
PREFILL, DECODE = palm.prefill_target(SMALL), palm.decode_target(SMALL)


def weights(plan):
    return {
        leaf.path: leaf.spec for leaf in plan.inputs if leaf.path.startswith("params")
    }


@pytest.fixture(scope="module")
def found():
    return plan_phases([PREFILL, (*DECODE, 8)], **OPTIONS)


def test_phases_store_their_weights_alike(found):
    assert weights(found[0]) == weights(found[1])
    assert found.seconds == found[0].step_time_s + 8 * found[1].step_time_s


def test_no_phase_is_faster_than_alone(found):
    for i, times in enumerate(found.times):
        assert found[i].step_time_s * times >= found.alone_s[i] * (1 - 1e-9)


def test_phases_print_their_seconds(found):
    lines = str(found).splitlines()
    assert "weights stored alike" in lines[0]
    assert "decode x8" in lines[2]


def test_a_search_of_experts_simulates_their_strategies_alone(found):
    plan = mw.autoplan(*DECODE, **OPTIONS)
    names = {each.name for each in plan.search.candidates}
    assert plan.search.method == "experts"
    assert "weight stationary 2d, attention by batch" in names
    assert "auto" not in names
    step = [c.step_time_s for c in plan.search.candidates if c.fits]
    assert plan.step_time_s == min(step)


@pytest.mark.parametrize(
    ("phases", "options", "words"),
    [
        ([PREFILL], {}, "got 1 phase; wanted at least 2"),
        ([PREFILL, (*DECODE, 0)], {}, "runs 0 times"),
        ([PREFILL, ("decode", ())], {}, "wanted a function first"),
        ([PREFILL, (DECODE[0], [1])], {}, "got list as arguments; wanted a tuple"),
        ([PREFILL, DECODE], {"weights_of": None}, "sets weights_of itself"),
    ],
)
def test_wrong_phases_are_refused(phases, options, words):
    with pytest.raises(PlanError, match=words):
        plan_phases(phases, **OPTIONS, **options)


def test_a_program_without_those_weights_says_so():
    other = (lambda v, x: x @ v, (jax.ShapeDtypeStruct((8, 8), jnp.float32),) * 2)
    with pytest.raises(PlanError):
        plan_phases([PREFILL, other], **OPTIONS)


def test_auto_has_no_search_of_experts():
    with pytest.raises(TacticError, match="which autoplan has; wanted program or tree"):
        mw.auto(["x"], machine="tpu-v4", search="experts")

"""Plans of two programs over one copy of the weights: prefill, then decoding."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.errors import PlanError
from zoo import palm

MESH = {"x": 2, "y": 2}
SMALL = replace(palm.TINY, layers=1)


def options(**others):
    return {"machine": "tpu-v4", "mesh": MESH, "budget_s": 4.0, "seed": 0} | others


def weights(plan):
    return {
        leaf.path: leaf.spec for leaf in plan.inputs if leaf.path.startswith("params")
    }


def test_decoding_stores_its_weights_as_prefill_does():
    _, args = palm.prefill_target(SMALL)

    def prefill_step(params, tokens):
        return palm.prefill(SMALL, params, tokens)

    tactic = mw.inference("weight_gathered_xy", ["x", "y"])
    prefill = mw.partition(prefill_step, MESH, [tactic]).plan(*args)
    fn, args = palm.decode_target(SMALL)
    del (chosen := options())["mesh"]  # that of prefill
    decode = mw.autoplan(fn, args, weights_of=prefill, **chosen)
    assert decode.mesh == prefill.mesh
    assert weights(decode) == weights(prefill)
    assert "its 9 weights are stored as in the plan of prefill_step" in str(decode)
    others = [
        c.why_not for c in decode.search.candidates if "stores params" in c.why_not
    ]
    assert others
    assert "prefill_step as [" in others[0]


def test_a_plan_of_a_program_that_trains_is_refused():
    def step(w, x):
        return w - 0.1 * x.T @ (x @ w), (x @ w).sum()

    args = jnp.ones((8, 8)), jnp.ones((8, 8))
    tactic = mw.data_parallel("x", "x")
    plan = mw.partition(step, MESH, [tactic], donate_argnums=0).plan(*args)
    with pytest.raises(PlanError, match="which updates its weights; wanted a plan"):
        mw.autoplan(step, args, weights_of=plan, **options())


def test_weights_of_is_a_plan():
    with pytest.raises(PlanError, match="weights_of is 'prefill'; wanted a plan"):
        mw.autoplan(jnp.sin, (jnp.ones(8),), weights_of="prefill", **options())

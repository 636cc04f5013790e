import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import TacticError
from tests.partitioner.tactics import models
from tests.partitioner.tactics.models import D, F, normal

EXPERTS = ("state.p.up", "state.p.down", "state.q.up", "state.r.down")


def test_tokens_travel_to_their_experts_and_back():
    fn, args = models.mixture_of_experts()
    tactics = [mw.data_parallel("data"), mw.expert_parallel("data")]
    step = mw.partition(fn, {"data": 4}, tactics)
    plan = step.plan(*args)
    assert plan.counts["all_to_all"] == 4
    assert plan.counts["all_gather"] == plan.counts["reduce_scatter"] == 0
    for path in EXPERTS:
        assert tuple(plan.spec(path)) == ("data", None, None)
    assert (
        plan.counts["all_reduce"] == 3
    )  # the loss, and two gradients of dense weights
    assert step.check(*args).ok


def test_along_another_axis_than_the_tokens():
    fn, args = models.mixture_of_experts()
    tactics = [mw.data_parallel("data"), mw.expert_parallel("model")]
    step = mw.partition(fn, {"data": 2, "model": 4}, tactics)
    plan = step.plan(*args)
    for path in EXPERTS:
        assert tuple(plan.spec(path)) == ("model", None, None)
    assert step.check(*args).ok


def test_groups_of_a_ragged_product_are_experts():
    def step(weights, x, sizes):
        def loss(w):
            y = jax.lax.ragged_dot(
                jnp.tanh(jax.lax.ragged_dot(x, w["u"], sizes)), w["w"], sizes
            )
            return jnp.mean(y * y)

        value, grads = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda w, g: w - g, weights, grads), value

    args = (
        {"u": normal(4, D, F), "w": normal(4, F, D)},
        normal(8, D),
        np.array([3, 0, 4, 1], np.int32),
    )
    step = mw.partition(step, {"model": 4}, [mw.expert_parallel("model")])
    plan = step.plan(*args)
    assert tuple(plan.spec("weights.u")) == ("model", None, None)
    assert tuple(plan.spec("weights.w")) == ("model", None, None)
    assert step.check(*args).ok


def test_without_experts_the_error_says_what_there_is():
    fn, args = models.mlp()
    with pytest.raises(TacticError, match="no experts to cut: none of 2 products"):
        mw.partition(fn, {"model": 4}, [mw.expert_parallel("model")]).plan(*args)


def test_experts_that_do_not_divide_are_told():
    def step(w, x):
        return jnp.einsum("ebd,edf->ebf", x, w)

    args = normal(6, D, F), normal(6, 4, D)
    with pytest.raises(TacticError, match="4 divides none of their numbers: w has 6"):
        mw.partition(step, {"model": 4}, [mw.expert_parallel("model")]).plan(*args)

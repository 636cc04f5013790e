"""`step.init` builds a state sharded as the step wants its argument."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import meshwright as mw
from meshwright.errors import PlanError

KEY = jax.random.key(0)
X = jax.ShapeDtypeStruct((16, 8), jnp.float32)
OPTIMIZER = optax.adam(1e-2)
TACTICS = [mw.data_parallel("data", "x"), mw.fsdp("data")]


def init(key, width=8):
    a, b = jax.random.split(key)
    params = {
        "up": jax.random.normal(a, (8, width)),
        "down": jax.random.normal(b, (8, 8)),
    }
    return params, OPTIMIZER.init(params)


def loss_fn(params, x):
    return jnp.tanh(x @ params["up"] @ params["down"]).mean()


def update(params, optimizer, x):
    gradients = jax.grad(loss_fn)(params, x)
    updates, optimizer = OPTIMIZER.update(gradients, optimizer, params)
    return optax.apply_updates(params, updates), optimizer


def train_step(state, x):
    return update(*state, x)


def planned(fn, *args):
    step = mw.partition(fn, {"data": 8}, TACTICS)
    return step, step.plan(*args)


def assert_built(state, shardings):
    """The state has these shardings, and the numbers of one device."""
    for leaf, sharding in zip(
        jax.tree.leaves(state), jax.tree.leaves(shardings), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)
    for leaf, wanted in zip(
        jax.tree.leaves(state), jax.tree.leaves(init(KEY)), strict=True
    ):
        np.testing.assert_array_equal(leaf, wanted)


def test_a_state_is_built_in_the_shardings_of_its_argument():
    step, plan = planned(train_step, jax.eval_shape(init, KEY), X)
    state = step.init(init, KEY)
    assert_built(state, plan.in_shardings[0])
    assert state[0]["up"].addressable_shards[0].data.size == 8
    assert step(state, np.ones((16, 8), np.float32))[0]["up"].shape == (8, 8)


def test_a_tuple_may_be_several_arguments():
    step, plan = planned(update, *jax.eval_shape(init, KEY), X)
    assert_built(step.init(init, KEY), plan.in_shardings[:2])


def average(params, mean, x):
    return jax.tree.map(lambda p, m: p + 0.1 * (m - p), params, mean), loss_fn(
        params, x
    )


def test_the_position_decides_between_arguments_that_are_alike():
    params = jax.eval_shape(lambda key: init(key)[0], KEY)
    step, _ = planned(average, params, params, X)
    with pytest.raises(
        PlanError, match=r"fits several .*: params, mean; say .* argnum="
    ):
        step.init(lambda key: init(key)[0], KEY)
    mean = step.init(lambda key: init(key)[0], KEY, argnum=1)
    np.testing.assert_array_equal(mean["up"], init(KEY)[0]["up"])
    both = step.init(lambda key: (init(key)[0],) * 2, KEY, argnum=(0, 1))
    assert len(both) == 2


@pytest.mark.parametrize(
    ("init_fn", "message"),
    [
        (
            lambda key: init(key, 4),
            r"\(state, x\): state.0.up is f32\[8, 4\], and the step takes f32\[8, 8\]",
        ),
        (lambda key: ({"up": init(key)[0]["up"]}, init(key)[1]), "0.down is missing"),
        (
            lambda key: ({**init(key)[0], "more": jnp.ones(3)}, init(key)[1]),
            "0.more is not part of state",
        ),
    ],
)
def test_what_does_not_match_is_named(init_fn, message):
    step, _ = planned(train_step, jax.eval_shape(init, KEY), X)
    with pytest.raises(PlanError, match=message):
        step.init(init_fn, KEY)
    with pytest.raises(PlanError, match="init_fn does not return state: "):
        step.init(init_fn, KEY, argnum=0)


def test_a_step_that_has_seen_no_arguments_says_what_to_do():
    step = mw.partition(train_step, {"data": 8}, TACTICS)
    with pytest.raises(PlanError, match=r"not seen its arguments yet; plan it first"):
        step.init(init, KEY)


def test_modules_are_built_in_the_shardings_of_their_arguments():
    def make(key):
        model = nnx.Linear(8, 8, rngs=nnx.Rngs(key))
        return model, nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)

    def in_place(model, optimizer, x):
        optimizer.update(model, nnx.grad(lambda m: jnp.tanh(m(x)).mean())(model))

    step = mw.nnx.partition(in_place, {"data": 8}, TACTICS)
    with pytest.raises(PlanError, match=r"not seen its arguments yet; plan it first"):
        step.init(make, KEY)
    step.plan(*nnx.eval_shape(make, KEY), X)
    model, optimizer = step.init(make, KEY)
    kernel = model.kernel[...]
    assert kernel.sharding.spec == jax.P("data")
    np.testing.assert_array_equal(kernel, make(KEY)[0].kernel[...])
    step(model, optimizer, np.ones((16, 8), np.float32))
    assert int(optimizer.step[...]) == 1

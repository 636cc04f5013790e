"""Orbax checkpoints of a partitioned step's state, restored onto a plan's shardings."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

import meshwright as mw

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
OPTIMIZER = optax.adam(1e-2)


def init(key):
    params = {"up": jax.random.normal(key, (8, 8)), "scale": jnp.ones(8)}
    return {"params": params, "optimizer": OPTIMIZER.init(params), "key": key}


def train_step(state, x):
    def loss_fn(params):
        kept = jax.random.bernoulli(state["key"], 0.9, x.shape)
        return jnp.tanh(x * kept @ params["up"] * params["scale"]).mean()

    loss, gradients = jax.value_and_grad(loss_fn)(state["params"])
    updates, optimizer = OPTIMIZER.update(
        gradients, state["optimizer"], state["params"]
    )
    params = optax.apply_updates(state["params"], updates)
    key = jax.random.fold_in(state["key"], 1)
    return {"params": params, "optimizer": optimizer, "key": key}, loss


def planned(mesh, tactics):
    step = mw.partition(train_step, mesh, tactics, donate_argnums=0)
    return step, step.plan(jax.eval_shape(init, KEY), X)


BATCH = mw.data_parallel("data", "x")


@pytest.mark.parametrize(
    ("mesh", "tactics"),
    [
        ({"data": 8}, [BATCH, mw.fsdp("data")]),
        ({"data": 4, "model": 2}, [BATCH, mw.shard({"state.**.up": 1}, "model")]),
        ({"data": 1}, []),
    ],
)
def test_a_state_is_restored_onto_the_same_and_onto_another_mesh(
    mesh, tactics, tmp_path
):
    step, _ = planned({"data": 8}, [BATCH, mw.fsdp("data")])
    state, _ = step(step.init(init, KEY), X)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "step_1", state)
    _, wanted = step(state, X)

    other, plan = planned(mesh, tactics)
    shapes = jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        jax.eval_shape(init, KEY),
        plan.in_shardings[0],
    )
    with ocp.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "step_1", shapes)
    pairs = zip(
        jax.tree.leaves(restored), jax.tree.leaves(plan.in_shardings[0]), strict=True
    )
    for leaf, sharding in pairs:
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)
    state, loss = other(restored, X)
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    assert int(state["optimizer"][0].count) == 2

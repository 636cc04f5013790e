"""`mw.nnx.partition` changes modules and optimizers in place, as `nnx.jit` does."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import meshwright as mw
from meshwright.errors import PlanError

RNG = np.random.default_rng(0)
BATCH = {
    "x": RNG.normal(size=(16, 8)).astype(np.float32),
    "y": RNG.normal(size=(16, 8)).astype(np.float32),
}
MESH = {"data": 4, "model": 2}
TACTICS = [mw.data_parallel("data", "batch.**"), mw.fsdp("data")]


class Net(nnx.Module):
    """Two layers, the second used twice, with a batch norm and dropout between."""

    def __init__(self, rngs):
        self.first = nnx.Linear(8, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.25, rngs=rngs)
        self.second = nnx.Linear(8, 8, rngs=rngs)
        self.again = self.second

    def __call__(self, x):
        x = self.dropout(self.norm(nnx.relu(self.first(x))))
        return self.again(nnx.relu(self.second(x)))


def train_step(model, optimizer, metrics, batch, scale=1.0):
    def loss_fn(model):
        return ((model(batch["x"]) - batch["y"]) ** 2).mean() * scale

    loss, gradients = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, gradients)
    metrics.update(loss=loss)
    model.last_loss = nnx.Variable(loss)  # a variable that was not there before
    return {"loss": loss}


def made():
    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    return model, optimizer, nnx.MultiMetric(loss=nnx.metrics.Average("loss"))


def assert_alike(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        pairs = [jax.tree.leaves(nnx.state(each)) for each in (one, other)]
        for a, b in zip(*pairs, strict=True):
            if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
                a, b = jax.random.key_data(a), jax.random.key_data(b)
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_modules_are_changed_as_by_nnx_jit():
    """Parameters, optimizer, batch statistics, metrics, random states and structure."""
    step = mw.nnx.partition(train_step, MESH, TACTICS)
    jitted = nnx.jit(train_step)
    ours, theirs = made(), made()
    for _ in range(3):
        got, wanted = step(*ours, BATCH, scale=2.0), jitted(*theirs, BATCH, scale=2.0)
        np.testing.assert_allclose(got["loss"], wanted["loss"], rtol=1e-5)
    assert_alike(ours, theirs)
    model, optimizer, _ = ours
    assert model.again is model.second
    assert int(model.dropout.rngs.count[...]) == 3
    kernels = model.first.kernel, optimizer.opt_state[0].mu.first.kernel
    for kernel in kernels:
        assert kernel[...].sharding.spec[0] == "data"


@pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 2), reason="calls no exported program with keys"
)
def test_a_step_on_a_cluster_is_planned_checked_and_builds_its_modules():
    pytest.importorskip("flatbuffers")

    def make(key):
        model = Net(nnx.Rngs(key))
        return model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    def step_of(model, optimizer, batch):
        def loss_fn(model):
            return ((model(batch["x"]) - batch["y"]) ** 2).mean()

        loss, gradients = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, gradients)
        return loss

    with mw.cluster("inline") as cluster:
        part = cluster.slice(MESH)
        step = mw.nnx.partition(step_of, part, TACTICS)
        step.plan(*nnx.eval_shape(make, jax.random.key(0)), BATCH)
        ours = step.init(make, jax.random.key(0))
        assert step.check(*ours, BATCH).ok  # the state has keys
        step(*ours, BATCH)
        nnx.update(ours, part.fetch(nnx.state(ours)))
    theirs = make(jax.random.key(0))
    nnx.jit(step_of)(*theirs, BATCH)
    assert_alike(ours, theirs)


def test_a_structure_is_traced_once():
    traced = []

    def step(model, batch):
        traced.append(batch["x"].shape)
        model.second.bias[...] += batch["x"].mean()

    model = made()[0]
    run = mw.nnx.partition(step, MESH, TACTICS[:1])
    for _ in range(3):
        assert run(model, BATCH) is None
    assert len(traced) == 1


def test_a_function_of_nnx_jit_keeps_its_static_and_donated_arguments():
    @nnx.jit(static_argnames="times", donate_argnames="model")
    def step(model, batch, times):
        for _ in range(times):
            model.first.bias[...] += batch["x"].mean()
        return model

    with pytest.raises(PlanError, match=r"use mw.nnx.partition\(step, mesh, tactics\)"):
        mw.partition(step, MESH, TACTICS[:1])
    model, _, _ = made()
    before = model.first.bias[...] + 0.0
    run = mw.nnx.partition(step, MESH, TACTICS[:1])
    assert run(model, BATCH, times=3) is model
    given = model.first.bias[...]
    np.testing.assert_allclose(given, before + 3 * BATCH["x"].mean(), atol=1e-5)
    run(model, BATCH, times=2)
    assert given.is_deleted()


def test_a_step_in_place_has_a_plan_a_check_and_stages():
    step = mw.nnx.partition(train_step, MESH, TACTICS)
    modules = made()
    before = modules[0].first.kernel[...]
    plan = step.plan(*modules, BATCH)
    assert plan.spec("model.first.kernel.value") == jax.P("data", None)
    assert step.check(*modules, BATCH).ok
    assert step.lower(*modules, BATCH).compile() is not None
    again = mw.nnx.partition(train_step, mw.Plan.from_json(plan.to_json()))
    assert again.plan(*modules, BATCH).inputs == plan.inputs
    assert modules[0].first.kernel[...] is before
    assert not hasattr(modules[0], "last_loss")
    abstract = nnx.eval_shape(made)
    assert step.plan(*abstract, BATCH).inputs == plan.inputs


def test_a_method_of_a_module_is_refused():
    with pytest.raises(
        PlanError, match=r"give Net.__call__, and the module as its first"
    ):
        mw.nnx.partition(made()[0].__call__, MESH)


def test_an_environment_without_flax_is_told_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "flax", None)
    with pytest.raises(PlanError, match=r"needs flax.*pip install flax"):
        mw.nnx.partition(train_step, MESH)


def test_arguments_may_hold_modules_in_containers():
    def step(modules, batch):
        modules["a"].bias[...] += batch.mean()
        return modules["a"](batch), modules["n"] + 1

    layer, x = nnx.Linear(8, 8, rngs=nnx.Rngs(0)), BATCH["x"]
    wanted = layer(x) + x.mean()
    run = mw.nnx.partition(step, MESH, [mw.data_parallel("data", "batch")])
    got, count = run({"a": layer, "n": jnp.int32(1)}, x)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert count == 2

"""A plan that is saved, loaded and given to `partition` decides the same again."""

import copy
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import meshwright as mw
from meshwright.errors import PlanError, TacticError
from meshwright.program.ir.program import show_program

MESH = {"data": 4, "model": 2}
RNG = np.random.default_rng(0)
PARAMS = {
    "layers": jnp.asarray(RNG.normal(size=(3, 16, 16)), jnp.float32),
    "head": jnp.asarray(RNG.normal(size=(16, 8)), jnp.float32),
}
X = jnp.asarray(RNG.normal(size=(16, 16)), jnp.float32)


def train(params, x):
    def loss(params):
        def layer(h, w):
            return jnp.tanh(h @ w), None

        h, _ = lax.scan(layer, x, params["layers"])
        h = h.reshape(16, 2, 8).sum(1) @ params["head"][:8]  # splits an axis of 4
        return jnp.mean(h**2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


TACTICS = [
    mw.data_parallel("data", "x"),
    mw.shard({"params.layers": 2}, "model"),
    mw.zero(3, "data"),
]

DATA_PARALLEL = [mw.data_parallel("data", "x")]
CASES = {
    "nothing": ([], None),
    "data": (DATA_PARALLEL, None),
    "zero and a cut": (TACTICS, None),
    "gathered at use": ([mw.data_parallel("data", "x"), mw.fsdp("data")], "at_use"),
    "recomputed": ([mw.recompute("scan"), mw.data_parallel("data", "x")], None),
    "dims": ([mw.shard({"x": 1, "params.head": 1}, "model")], None),
    "combined": (
        [*DATA_PARALLEL, mw.overlap("data", products=False, combine_bytes=2**20)],
        None,
    ),
    "gathered ahead": (
        [
            *DATA_PARALLEL,
            mw.fsdp("data"),
            mw.overlap("data", products=False, ahead=True),
        ],
        None,
    ),
    "searched": ([mw.auto(("data", "model"), machine="tpu-v4")], None),
}


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_plan_makes_the_same_device_program(case, tmp_path):
    tactics, gather = CASES[case]
    made = mw.partition(train, MESH, tactics, gather=gather)
    plan = made.plan(PARAMS, X)
    path = tmp_path / "plan.json"
    plan.save(path)
    loaded = mw.Plan.load(path)
    assert loaded == plan
    assert loaded.to_json() == plan.to_json()
    again = mw.partition(train, loaded)
    assert show_program(again.decide(PARAMS, X).lowered.program) == show_program(
        plan.decided.lowered.program
    )
    same = mw.partition(train, loaded.mesh, loaded.tactics, gather=loaded.gather)
    assert same.plan(PARAMS, X).counts == plan.counts
    assert pickle.loads(pickle.dumps(again.plan(PARAMS, X))).tactics == loaded.tactics
    for one, other in zip(
        jax.tree.leaves(again(PARAMS, X)),
        jax.tree.leaves(train(PARAMS, X)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_loaded_plan_of_a_search_keeps_the_table_of_candidates():
    found = mw.autoplan(
        train, (PARAMS, X), machine="tpu-v5e", mesh={"data": 4}, budget_s=1
    )
    loaded = pickle.loads(pickle.dumps(found))
    assert len(loaded.candidates.rows) > 1
    assert loaded.candidates == found.candidates
    assert mw.Plan.from_json(loaded.to_json()).candidates == found.candidates


OTHER = """
import jax, sys
import meshwright as mw
sys.path.insert(0, "")
from tests.app.plan.test_travel import PARAMS, X, train
plan = mw.Plan.load(sys.argv[1])
print(mw.partition(train, plan).plan(PARAMS, X).counts == plan.counts)
print(mw.partition(train, plan).check(PARAMS, X).ok)
"""


def test_another_process_runs_a_loaded_plan(tmp_path):
    mw.partition(train, MESH, TACTICS).plan(PARAMS, X).save(tmp_path / "plan.json")
    done = subprocess.run(
        [sys.executable, "-c", OTHER, str(tmp_path / "plan.json")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.split() == ["True", "True"], done.stderr


def wider(params, x):
    return train(params, jnp.tanh(x))


def without_state(params, x):
    return train(params, x)[1]


def crosswise(params, x):
    return train(params, x.T)


WRONG = {
    "params.head is 'input f32[16, 4]', and was 'input f32[16, 8]'": (
        train,
        {**PARAMS, "head": PARAMS["head"][:, :4]},
    ),
    "is 'tanh f32[16, 16]', and was": (wider, PARAMS),
    "and was 'scan (wire) f32[3, 16, 16]'": (without_state, PARAMS),
    "is 'transpose f32[16, 16]', and was": (crosswise, PARAMS),
}


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("words", WRONG)
def test_a_plan_of_another_program_is_refused_with_the_difference(words, is_loaded):
    fn, params = WRONG[words]
    plan = mw.partition(train, MESH, TACTICS).plan(PARAMS, X)
    plan = pickle.loads(pickle.dumps(plan)) if is_loaded else plan
    with pytest.raises(TacticError, match="the plan was made for") as error:
        mw.partition(fn, plan).plan(params, X)
    assert words in str(error.value)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_plan_of_another_batch_size_is_refused_with_both_sizes(is_loaded):
    plan = mw.partition(jnp.tanh, MESH, [mw.shard({"x": 0}, "data")]).plan(X)
    plan = pickle.loads(pickle.dumps(plan)) if is_loaded else plan
    with pytest.raises(TacticError, match=r"x is 'input f32\[32, 16\]', and was"):
        mw.partition(jnp.tanh, plan)(jnp.ones((32, 16)))


def test_another_program_that_divides_an_axis_is_named_by_its_first_difference():
    def one(x):
        return jnp.tanh(x)

    def regrouped(x):
        return jnp.sin(x.reshape(2, 4, 8)).reshape(8, 8)

    mesh, x = {"data": 4}, jnp.ones((8, 8))
    plan = mw.partition(one, mesh, [mw.shard({"x": 0}, "data")]).plan(x)
    recorded = pickle.loads(pickle.dumps(plan))
    with pytest.raises(TacticError, match="reshape f32"):
        mw.partition(regrouped, recorded).plan(x)


def test_the_same_ops_on_other_values_are_refused():
    def one(x, y):
        return jnp.tanh(x) @ y

    def other(x, y):
        return x @ jnp.tanh(y)

    x = np.ones((8, 8), np.float32)
    plan = mw.partition(one, {"data": 8}, [mw.shard({"x": 0}, "data")]).plan(x, x)
    loaded = mw.Plan.from_json(plan.to_json())
    with pytest.raises(TacticError, match="read other values"):
        mw.partition(other, loaded).plan(x, x)


def test_a_plan_has_its_own_tactics():
    plan = mw.partition(train, MESH, TACTICS).plan(PARAMS, X)
    with pytest.raises(PlanError, match="give the plan alone"):
        mw.partition(train, plan, TACTICS)
    with pytest.raises(PlanError, match="cannot read a plan from"):
        mw.Plan.load("/nowhere/plan.json")
    with pytest.raises(PlanError, match="there is no folder"):
        plan.save("/nowhere/plan.json")


def test_a_copied_plan_keeps_its_program():
    plan = mw.partition(train, MESH, TACTICS).plan(PARAMS, X)
    for copied in (copy.copy(plan), copy.deepcopy({"plan": plan})["plan"]):
        assert copied.decided is plan.decided

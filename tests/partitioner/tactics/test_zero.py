import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.errors import TacticError
from tests.partitioner.tactics import models
from tests.partitioner.tactics.models import D, F, normal

MESH = {"data": 4, "model": 2}


def specs(plan):
    return {leaf.path: tuple(leaf.partition_spec) for leaf in plan.inputs}


def test_stage_2_scatters_gradients_and_gathers_updates():
    fn, args = models.mlp()
    step = mw.partition(fn, MESH, [mw.data_parallel("data"), mw.zero(2, "data")])
    plan = step.plan(*args)
    assert plan.counts["reduce_scatter"] == plan.counts["all_gather"] == 4
    assert plan.counts["all_reduce"] == 1
    found = specs(plan)
    assert found["state.p.a"] == (None, None)
    assert found["state.q.a"] == found["state.r.a"] == ("data", None)
    assert step.check(*args).ok


def test_stage_3_cuts_parameters_too():
    fn, args = models.mlp()
    step = mw.partition(fn, MESH, [mw.data_parallel("data"), mw.zero(3, "data")])
    plan = step.plan(*args)
    assert plan.counts["reduce_scatter"] == 4
    assert plan.counts["all_reduce"] == 1
    assert specs(plan)["state.p.a"] == ("data", None)
    assert step.check(*args).ok


def test_fsdp_is_data_parallelism_and_stage_3():
    fn, args = models.mlp()
    fsdp = mw.partition(fn, MESH, [mw.fsdp("data")]).plan(*args)
    both = [mw.data_parallel("data"), mw.zero(3, "data")]
    assert fsdp.counts == mw.partition(fn, MESH, both).plan(*args).counts
    after = mw.partition(fn, MESH, [both[0], mw.fsdp("data")]).plan(*args)
    assert fsdp.inputs == after.inputs


def test_layers_in_a_scan_are_gathered_one_by_one():
    fn, args = models.language_model(
        models.llama_block, models.llama_weights(), layers=4, stacked=True
    )
    step = mw.partition(fn, MESH, [mw.fsdp("data")])
    plan = step.plan(*args)
    found = specs(plan)
    for leaf in ("p.l.q", "q.l.q", "r.l.q"):
        assert found[f"state.{leaf}"] == (None, "data", None)
    gathers = [c for c in plan.collectives if c.kind == "all_gather"]
    assert any(c.executions == 4 for c in gathers)
    assert all(c.value.count(",") == 1 for c in gathers)  # one layer's, not the stack
    assert step.check(*args).ok


def test_a_dim_that_is_cut_already_is_cut_on():
    fn, args = models.mlp()
    tactics = [mw.data_parallel("data"), mw.megatron("model"), mw.zero(3, "data")]
    found = specs(mw.partition(fn, MESH, tactics).plan(*args))
    assert found["state.p.a"] == found["state.q.a"] == ("data", "model")
    assert found["state.p.c"] == found["state.r.c"] == (("model", "data"), None)


def test_patterns_say_which_leaves():
    fn, args = models.mlp()
    one = mw.zero(3, "data", params="state.p.a", state="state.*.a")
    found = specs(mw.partition(fn, MESH, [mw.data_parallel("data"), one]).plan(*args))
    assert {path for path, spec in found.items() if "data" in spec} == {
        "state.p.a", "state.q.a", "state.r.a", "batch.x", "batch.y",
    }  # fmt: skip


def test_it_may_come_first():
    fn, args = models.mlp()
    step = mw.partition(fn, MESH, [mw.zero(3, "data"), mw.data_parallel("data")])
    assert step.check(*args).ok


def test_stage_2_of_a_step_without_optimizer_state_says_so():
    def step(w, x):
        return x @ w

    with pytest.raises(TacticError, match="no optimizer state"):
        mw.partition(step, MESH, [mw.zero(2, "data")]).plan(normal(D, F), normal(8, D))


def test_what_nothing_divides_is_an_error():
    def step(w, x):
        return x @ w

    with pytest.raises(TacticError, match=r"4 divides no dim of w: f32\[3, 5\]"):
        mw.partition(step, MESH, [mw.zero(3, "data")]).plan(normal(3, 5), normal(8, 3))


@pytest.mark.parametrize("name", ["params", "state"])
def test_what_is_no_pattern_is_refused(name):
    with pytest.raises(
        TacticError, match=r"zero: \{'w': 0\} is no pattern; wanted a text"
    ):
        mw.zero(3, "data", **{name: {"w": 0}})


def test_there_is_no_stage_4():
    with pytest.raises(TacticError, match="stages 2 and 3, not 4"):
        mw.zero(4, "data")


def cut_by_zero(width, **options):
    """The parameters of a layer [width, width] that stage 3 cuts."""

    def step(params, x):
        def loss(p):
            return jnp.mean(jnp.tanh(x @ p["w"] + p["b"]) ** 2)

        return jax.tree.map(lambda p, g: p - g, params, jax.grad(loss)(params))

    f32 = jnp.float32
    params = {"w": jax.ShapeDtypeStruct((width, width), f32)}
    params["b"] = jax.ShapeDtypeStruct((width,), f32)
    tactics = [mw.data_parallel("data"), mw.zero(3, "data", **options)]
    step = mw.partition(step, MESH, tactics)
    plan = step.plan(params, jax.ShapeDtypeStruct((8, width), f32))
    return {p.path for p in plan.inputs if p.path.startswith("params") and any(p.spec)}


def test_leaves_of_few_elements_stay_whole_if_they_have_at_most_one_per_cent():
    assert cut_by_zero(256) == {"params.w"}  # 256 of 65,792 elements
    assert cut_by_zero(64) == {"params.w", "params.b"}  # 64 of 4,160
    assert cut_by_zero(20_000) == {"params.w", "params.b"}  # no latency to save


def test_min_elements_says_which_leaves_stay_whole():
    assert cut_by_zero(256, min_elements=0) == {"params.w", "params.b"}
    assert cut_by_zero(64, min_elements=65) == {"params.w"}
    with pytest.raises(TacticError, match="no leaf has min_elements=5000 elements"):
        cut_by_zero(64, min_elements=5000)


@pytest.mark.parametrize("count", [-1, 1.5, True, "all"])
def test_what_is_no_number_of_elements_is_refused(count):
    with pytest.raises(
        TacticError, match=f"min_elements is {count!r}; wanted a number"
    ):
        mw.zero(3, "data", min_elements=count)
    with pytest.raises(TacticError, match="fsdp: min_elements is"):
        mw.fsdp("data", min_elements=count)

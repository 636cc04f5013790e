"""Donation: what a plan assumes, what its step does, and the memory of what is kept."""

import warnings

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.errors import MeshwrightWarning

MIB = 2**20
P = {"a": jnp.full((512, 2048), 0.01), "b": jnp.full((2048, 512), 0.01)}
STATE = {"p": P, "m": jax.tree.map(jnp.zeros_like, P)}
X = jnp.ones((64, 512))
STATE_BYTES = 4 * 4 * MIB


def step(state, x):
    def loss(p):
        return ((jnp.tanh(x @ p["a"]) @ p["b"]) ** 2).mean()

    value, grads = jax.value_and_grad(loss)(state["p"])
    m = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], grads)
    return {"p": jax.tree.map(lambda w, m: w - 0.1 * m, state["p"], m), "m": m}, value


def planned(**options):
    tactics = [mw.data_parallel("d")]
    return mw.partition(step, {"d": 4}, tactics, **options).plan(STATE, X)


def fresh():
    return jax.tree.map(jnp.copy, STATE)


@pytest.mark.parametrize("machine", ["tpu-v5e", "tpu-v4"])
def test_state_that_is_not_donated_is_in_memory_beside_its_next_value(machine):
    donated, kept = planned(donate_argnums=0).on(machine), planned().on(machine)
    assert kept.peak_memory_bytes - donated.peak_memory_bytes == STATE_BYTES


@pytest.mark.parametrize("given", [0, None], ids=["donated", "kept"])
def test_memory_on_cpus_is_what_the_compiler_says(given):
    partitioned = mw.partition(step, {"d": 4}, [mw.fsdp("d")], donate_argnums=given)
    compiled = partitioned.jitted(STATE, X).lower(STATE, X).compile().memory_analysis()
    wanted = compiled.argument_size_in_bytes + compiled.output_size_in_bytes
    wanted += compiled.temp_size_in_bytes - compiled.alias_size_in_bytes
    plan = partitioned.plan(STATE, X).on(mw.machine("cpu", chips=4))
    assert plan.peak_memory_bytes == pytest.approx(wanted, rel=0.02)


def test_state_that_is_not_donated_takes_memory_on_gpus():
    h100 = mw.machine("h100", chips=4)
    donated, kept = planned(donate_argnums=0).on(h100), planned().on(h100)
    assert kept.peak_memory_bytes > 2 * STATE_BYTES > donated.peak_memory_bytes


def test_gradients_of_an_argument_lie_beside_it():
    """A result that could take an undonated input's memory is an array of its own."""

    def fn(w, x):
        return jax.grad(lambda w: (jnp.tanh(x @ w) @ w.T).sum())(w)

    w = jax.ShapeDtypeStruct((1024, 1024), "float32")
    plan = mw.partition(fn, {"d": 1}, []).plan(w, w).on("tpu-v5e")
    assert plan.peak_memory_bytes > 3 * 4 * MIB


def test_a_plan_of_given_tactics_donates_as_its_function_does():
    assert planned().donated == ()
    plan = planned(donate_argnums=0)
    assert plan.donated == ("state.m.a", "state.m.b", "state.p.a", "state.p.b")
    assert plan.on("tpu-v5e").donated == plan.donated
    assert (
        planned().on("tpu-v5e", donate_state=True).on("tpu-v4").donated == plan.donated
    )


@pytest.mark.parametrize("travels", [False, True])
def test_a_found_plan_donates_what_it_assumes(travels):
    found = mw.autoplan(
        step, (STATE, X), machine="tpu-v5e", mesh={"d": 4}, budget_s=0.5
    )
    plan = mw.Plan.from_json(found.to_json()) if travels else found
    assert set(plan.donated) == {"state.m.a", "state.m.b", "state.p.a", "state.p.b"}
    partitioned = mw.partition(step, plan)
    again = partitioned.plan(STATE, X).on("tpu-v5e")
    assert again.peak_memory_bytes == found.peak_memory_bytes
    assert partitioned.check(STATE, X).ok
    state = jax.device_put(fresh(), again.in_shardings[0])
    partitioned(state, X)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    compiled = partitioned.jitted(STATE, X).lower(STATE, X).compile()
    assert compiled.memory_analysis().alias_size_in_bytes > 0


def test_a_caller_who_keeps_what_a_plan_donates_is_told_the_bytes():
    plan = planned().on("tpu-v5e", donate_state=True)
    with pytest.warns(MeshwrightWarning, match=r"memory of 16\.0 MiB of its inputs"):
        kept = mw.partition(step, plan, donate_argnums=())
    state = jax.device_put(fresh(), kept.plan(STATE, X).in_shardings[0])
    kept(state, X)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mw.partition(step, plan, donate_argnums=0)
        mw.partition(step, plan)


def test_a_search_without_donation_counts_the_state_twice():
    plans = [
        mw.autoplan(
            step, (STATE, X), machine="tpu-v5e", mesh={"d": 4}, budget_s=0.5,
            tactics=[mw.data_parallel("d")], experts=False, donate_argnums=given,
        )
        for given in (0, ())
    ]  # fmt: skip
    assert plans[1].donated == ()
    assert plans[1].peak_memory_bytes > plans[0].peak_memory_bytes

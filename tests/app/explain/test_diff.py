"""The differences of two plans."""

import re

import jax
import jax.numpy as jnp

import meshwright as mw

STATE = {"layers": [{"w": jax.ShapeDtypeStruct((64, 64), jnp.float32)}] * 3}
X = jax.ShapeDtypeStruct((32, 64), jnp.float32)


def step(state, x):
    for layer in state["layers"]:
        x = jnp.tanh(x @ layer["w"])
    return x.sum()


def plan(*tactics, mesh=None, machine=None):
    made = mw.partition(step, mesh or {"data": 8}, tactics).plan(STATE, X)
    return made if machine is None else made.on(machine)


DATA = mw.data_parallel("data", "x")


def test_equal_plans_have_no_differences():
    saved = mw.Plan.from_json(plan(DATA, machine="tpu-v4").to_json())
    found = mw.diff(plan(DATA, machine="tpu-v4"), saved)
    assert found.is_equal
    assert str(found) == "the plans are equal"
    assert found.to_json() == {"equal": True, "rows": []}


def test_shardings_collectives_and_figures_are_compared():
    found = mw.diff(plan(DATA), plan(DATA, mw.zero(3, "data"), machine="tpu-v4"))
    rows = {what: (a, b) for what, a, b in found.rows}
    assert rows["collectives all_gather"] == ("0", "3")
    assert rows["argument state.layers.0.w"] == ("[-, -]", "[data, -]")
    assert rows["machine"] == ("-", "8 devices of tpu-v4")
    assert "argument x" not in rows
    assert re.search(
        r"argument state\.layers\.\*\.w +\[-, -\] -> .* \(x3\)", str(found)
    )


def test_another_mesh_is_named():
    text = str(mw.diff(plan(DATA), plan(DATA, mesh={"data": 4, "model": 2})))
    assert "mesh" in text
    assert "data=8 -> data=4,model=2" in text

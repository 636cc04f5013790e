import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import MeshError, TacticError
from tests.partitioner.tactics import models
from tests.partitioner.tactics.models import D, F, normal

MESH = {"data": 4, "model": 2}


def spec(plan, path):
    return tuple(plan.spec(path))


def test_gradients_and_loss_are_summed_and_numbers_stay():
    fn, args = models.mlp()
    step = mw.partition(fn, MESH, [mw.data_parallel("data")])
    plan = step.plan(*args)
    assert plan.counts["all_reduce"] == 4 + 1
    assert sum(plan.counts.values()) == 5
    assert spec(plan, "batch.x") == ("data", None)
    assert step.check(*args).ok


def test_a_pattern_names_the_data():
    fn, args = models.mlp()
    plan = mw.partition(fn, MESH, [mw.data_parallel("data", inputs="*.x")]).plan(*args)
    assert spec(plan, "batch.x") == ("data", None)
    assert plan.steps[1].tactic == "data_parallel('data', inputs='*.x')"


def test_a_leaf_of_another_length_is_left_alone_and_noted():
    def predict(weights, inputs):
        x = inputs["x"] + inputs["scale"][0]
        return (x @ weights) * inputs["y"]

    inputs = {"x": normal(8, D), "y": normal(8, F), "scale": normal(4)}
    plan = mw.partition(predict, MESH, [mw.data_parallel("data")]).plan(
        normal(D, F), inputs
    )
    assert spec(plan, "inputs.x") == ("data", None)
    assert spec(plan, "inputs.scale") == (None,)
    (why,) = plan.steps[1].refused
    assert "inputs.scale along 'data'" in why
    assert "4 elements, the batch has 8" in why


def test_work_on_data_that_are_joined_along_the_batch_is_cut():
    """As words are by a sampler that asks with and without them at once."""

    def predict(weights, inputs):
        none = jnp.zeros_like(inputs["words"])
        words = jnp.concatenate([inputs["words"], none]).mean(1) @ weights
        return inputs["x"] @ weights + words[:8] - words[8:]

    inputs = {"x": normal(8, D), "words": normal(8, 12, D)}
    step = mw.partition(predict, MESH, [mw.data_parallel("data")])
    plan = step.plan(normal(D, D), inputs)
    assert not [work for work in plan.uncut if work.axis == "data"]
    assert {kind for kind, n in plan.counts.items() if n} == {"permute"}
    assert "the batch is made inside the step" in plan.steps[-1].refused[0]
    assert step.check(normal(D, D), inputs).ok


def test_a_step_without_products_counts_all_ops_and_advises_to_cut_its_data():
    def step(table, ids):
        grads = jax.grad(lambda t: jnp.sum(jnp.square(t[ids])))(table)
        return table - grads

    warning = r"\d\d% of the work \(FLOPs of all ops\) .* shard\(\{'ids': 1\}"
    with pytest.warns(mw.MeshwrightWarning, match=warning):
        mw.partition(step, MESH, [mw.data_parallel("data")]).plan(
            normal(32, 8), jnp.arange(16).reshape(8, 2)
        )


def sorted_by_expert(weights, x, tag=lambda rows: rows):
    """Tokens `x` [T, D], each multiplied with the weights of its expert."""
    expert = jnp.argmax(x @ weights["gate"], -1)
    order = jnp.argsort(expert)
    sizes = jnp.bincount(expert, length=4).astype(jnp.int32)
    hidden = jax.lax.ragged_dot(tag(x[order]), weights["up"], sizes)
    made = jax.lax.ragged_dot(hidden, weights["down"], sizes)
    return jnp.zeros_like(x).at[order].set(made)


def test_rows_that_the_step_makes_are_tagged_as_the_warning_says():
    weights = {
        "gate": normal(16, 4),
        "up": normal(4, 16, 64),
        "down": normal(4, 64, 16),
    }
    args, data = (weights, normal(32, 16)), mw.data_parallel("data")
    advice = r"by mw.tag\(x, 'rows'\) and shard\(\{'tag:rows': 0\}, axis='data'\)"
    with pytest.warns(mw.MeshwrightWarning, match=advice):
        mw.partition(sorted_by_expert, {"data": 4}, [data]).plan(*args)

    def tagged(weights, x):
        return sorted_by_expert(weights, x, lambda rows: mw.tag(rows, "rows"))

    tactics = [mw.shard({"tag:rows": 0}, axis="data"), data]
    step = mw.partition(tagged, {"data": 4}, tactics)
    assert not [w for w in step.plan(*args).uncut if "ragged" in str(w)]
    assert step.check(*args).ok


def test_data_that_is_whole_is_what_the_warning_names():
    """As that of the edges of a graph is, which has fewer nodes."""

    def step(weights, nodes, edges, src):
        nodes = jnp.tanh(nodes @ weights["nodes"])
        return (edges @ weights["edges"])[:, :D] + nodes[src]

    weights = {"nodes": normal(D, D), "edges": normal(2, D)}
    args = weights, normal(16, D), normal(64, 2), jnp.zeros(64, jnp.int32)
    advice = r"name it, as in shard\(\{'edges': 0\}, axis='data'\)"
    with pytest.warns(mw.MeshwrightWarning, match=advice):
        mw.partition(step, {"data": 4}, [mw.data_parallel("data")]).plan(*args)


def test_a_warning_comes_once_for_plans_and_calls():
    """Those of a later line would not be told apart by Python's own filter."""

    def step(table, ids):
        grads = jax.grad(lambda t: jnp.sum(jnp.square(t[ids])))(table)
        return table - grads

    args = normal(32, 8), jnp.arange(16).reshape(8, 2)
    partitioned = mw.partition(step, {"data": 4}, [mw.data_parallel("data")])
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        partitioned.plan(*args)
        partitioned(*args)
        partitioned.plan(*args)
    (warning,) = (w for w in issued if w.category is mw.MeshwrightWarning)
    assert "of the work (FLOPs of all ops)" in str(warning.message)


def test_where_a_scan_runs_over_dim_0_the_batch_is_dim_1():
    def loss(p, chunk):
        return jnp.mean(jnp.tanh(chunk @ p) ** 2)

    def step(params, batch):
        def add(total, chunk):
            value, grads = jax.value_and_grad(loss)(params, chunk)
            return total + grads, value

        total, values = jax.lax.scan(add, jnp.zeros_like(params), batch)
        return params - 0.1 * total, values.mean()

    step = mw.partition(step, MESH, [mw.data_parallel("data")])
    args = normal(D, F), normal(3, 8, D)
    plan = step.plan(*args)
    assert spec(plan, "batch") == (None, "data", None)
    assert step.check(*args).ok


def test_a_batch_that_does_not_divide_is_an_error():
    def predict(w, x):
        return x @ w

    with pytest.raises(TacticError, match="4 parts do not divide extent 6"):
        mw.partition(predict, MESH, [mw.data_parallel("data")]).plan(
            normal(D, F), normal(6, D)
        )


def test_without_data_the_error_says_what_there_is():
    def step(state):
        return {"w": state["w"] * 2.0}

    with pytest.raises(TacticError, match=r"finds no data .*state\.w"):
        mw.partition(step, MESH, [mw.data_parallel("data")]).plan(
            {"w": np.ones((8, 8), np.float32)}
        )


def test_an_axis_that_is_not_in_the_mesh_is_an_error():
    fn, args = models.mlp()
    with pytest.raises(MeshError, match=r"'batch' is not in the mesh.*data=4"):
        mw.partition(fn, MESH, [mw.data_parallel("batch")]).plan(*args)


def test_several_patterns_name_the_data_together():
    def predict(w, left, right):
        return left @ w, right @ w

    args = normal(D, F), normal(8, D), normal(8, D)
    tactic = mw.data_parallel("data", inputs=("left", "right"))
    assert str(tactic) == "data_parallel('data', inputs=['left', 'right'])"
    plan = mw.partition(predict, MESH, [tactic]).plan(*args)
    assert [leaf.spec[0] for leaf in plan.inputs] == [(), ("data",), ("data",)]


def test_what_is_no_pattern_is_an_error():
    with pytest.raises(
        TacticError, match="data_parallel: 0 is no pattern; wanted a text"
    ):
        mw.data_parallel("data", inputs=(0,))


def test_both_batches_of_a_contrastive_loss_are_cut():
    """One is gathered for the scores; without it, a tower would stay whole."""

    def loss(p, images, words):
        left = images @ p["images"]
        right = p["table"][words].mean(1) @ p["words"]
        scores = jnp.exp(p["scale"]) * left @ right.T
        return -jnp.diagonal(jax.nn.log_softmax(scores)).mean()

    p = {"images": normal(32, 8), "table": normal(10, 16), "words": normal(16, 8)}
    p["scale"] = normal()
    args = p, normal(64, 32), jnp.zeros((64, 7), jnp.int32)
    step = mw.partition(jax.grad(loss), {"data": 8}, [mw.data_parallel("data")])
    plan = step.plan(*args)
    assert spec(plan, "images") == ("data", None)
    assert spec(plan, "words") == ("data", None)
    assert step.check(*args).ok

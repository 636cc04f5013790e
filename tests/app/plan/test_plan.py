import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

import meshwright as mw
from meshwright.app.output.collapse import collapse, index_free, merge

MESH = {"data": 4, "model": 2}
STATE = {"layers": [{"w": np.ones((8, 8), np.float32)} for _ in range(3)]}
X = np.ones((16, 8), np.float32)


def step(state, x):
    for layer in state["layers"]:
        x = jnp.tanh(x @ layer["w"])
    return {"loss": x.mean(), "x": x}


TACTICS = [
    mw.shard({"x": 0}, axis="data"),
    mw.shard({"state.layers.2.w": 0}, axis="data"),
    mw.shard({"state.layers.0.w": 1}, axis="model"),
]


def plan(**options):
    return mw.partition(step, MESH, TACTICS, **options).plan(STATE, X)


def test_a_plan_has_counts_collectives_leaves_and_steps():
    found = plan()
    assert found.counts == {
        "all_gather": 1,
        "all_reduce": 2,
        "reduce_scatter": 0,
        "all_to_all": 0,
        "permute": 0,
    }
    assert sum(c.executions for c in found.collectives) == sum(found.counts.values())
    gather = next(c for c in found.collectives if c.kind == "all_gather")
    assert (gather.axes, gather.bytes, gather.value) == (("data",), 256, "f32[2, 8]")
    assert gather.source.startswith("tests/app/plan/test_plan.py:")
    assert found.spec("x") == PartitionSpec("data", None)
    assert found.spec("state.layers.0.w") == PartitionSpec(None, "model")
    assert found.spec("out.x") == PartitionSpec("data", None)
    assert [s.tactic for s in found.steps[1:]] == list(map(str, TACTICS))
    assert found.steps[1].cut == ("x [data, -]",)
    assert found.steps[-1].counts == found.counts


def test_a_plan_needs_no_arrays():
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (STATE, X))
    assert mw.partition(step, MESH, TACTICS).plan(*shapes) == plan()


def test_a_plan_reads_back_from_json():
    found = plan()
    text = found.to_json()
    read = mw.Plan.from_json(text)
    assert read == found
    assert read.to_json() == text
    assert str(read) == str(found)
    assert json.loads(text)["counts"] == found.counts


def test_numpy_integers_in_parameters_become_json():
    """JAX pads by them in the gradient of a strided convolution."""

    def loss(x, weights):
        y = lax.conv_general_dilated(
            x, weights, (2,), "VALID", dimension_numbers=("NHC", "HIO", "NHC")
        )
        y, _ = lax.scan(lambda c, _: (jnp.tanh(c), None), y, length=np.int64(3))
        return lax.slice(y, np.array([0, 0, 0]), np.array([2, 4, 8])).sum()

    x = jax.ShapeDtypeStruct((2, 16, 2), jnp.float32)
    weights = jax.ShapeDtypeStruct((2, 2, 8), jnp.float32)
    for fn in (loss, jax.grad(loss), jax.grad(loss, 1)):
        for dim in (0, 1):
            partitioned = mw.partition(fn, {"a": 2}, [mw.shard({"x": dim}, "a")])
            found = partitioned.plan(x, weights)
            assert mw.Plan.from_json(found.to_json()) == found


def test_the_same_input_gives_the_same_text():
    assert plan().to_json() == plan().to_json()


def test_shardings_feed_plain_jit():
    found = plan()
    state, x = found.in_shardings
    assert isinstance(x, NamedSharding)
    assert x.mesh.axis_names == ("data", "model")
    jitted = jax.jit(step, in_shardings=(state, x), out_shardings=found.out_shardings)
    assert jitted(STATE, X)["x"].sharding.is_equivalent_to(found.out_shardings["x"], 2)


def test_shardings_of_a_plan_from_json_are_flat():
    found = mw.Plan.from_json(plan().to_json())
    assert [s.spec for s in found.out_shardings] == [
        PartitionSpec(),
        PartitionSpec("data"),
    ]


def test_loops_multiply_counts():
    def loop(x, w):
        def body(carry, row):
            return jnp.tanh(carry @ w) + row, None

        return lax.scan(body, x[0], x)[0]

    x = np.ones((5, 4, 8), np.float32)
    w = np.ones((8, 8), np.float32)
    tactics = [mw.shard({"x": 1}, axis="data"), mw.shard({"w": 0}, axis="model")]
    found = mw.partition(loop, MESH, tactics).plan(x, w)
    row = max(found.collectives, key=lambda c: c.executions)
    assert row.executions == 5
    assert sum(found.counts.values()) == sum(c.executions for c in found.collectives)


def test_split_axes_are_shown_by_the_name_of_the_user():
    """A dim that all parts of an axis cut in order is cut by the axis."""
    found = mw.partition(
        lambda x: jnp.sin(x.reshape(4, 4)), {"a": 8}, [mw.shard({"x": 0}, axis="a")]
    ).plan(np.ones(16, np.float32))
    assert found.spec("x") == PartitionSpec("a")
    assert found.in_shardings[0].spec == PartitionSpec("a")
    assert found.steps[-1].cut == ("x [a]",)


# -- text ------------------------------------------------------------------------------


def test_a_plan_prints_a_page():
    lines = str(plan()).splitlines()
    assert lines[0] == "step: mesh data=4,model=2, 8 devices, gather shared"
    assert "  state.layers.0.w: f32[8, 8] [-, model]" in lines
    assert "  state.layers.2.w: f32[8, 8] [data, -]" in lines
    assert any(line.startswith("  all_gather     data ") for line in lines)


@pytest.mark.parametrize(
    ("lines", "collapsed"),
    [
        (["a.0.w", "a.1.w", "b.0"], [("a.*.w", 2), ("b.0", 1)]),
        (["p.0.mu.0", "p.0.mu.1"], [("p.0.mu.*", 2)]),
        (["p.Dense_0.k", "p.Dense_12.k"], [("p.Dense_*.k", 2)]),
        (["a.py:3", "a.py:4"], [("a.py:3", 1), ("a.py:4", 1)]),
        (["same", "same"], [("same", 2)]),
        ([], []),
    ],
)
def test_lines_that_differ_in_the_layer_become_one(lines, collapsed):
    assert collapse(lines) == collapsed


@given(st.lists(st.lists(st.sampled_from(["a", "b", "0", "1", "12"])).map(".".join)))
def test_collapsing_loses_no_line(lines):
    collapsed = collapse(lines)
    assert sum(count for _, count in collapsed) == len(lines)
    for text, _ in collapsed:
        members = [line for line in lines if index_free(line) == index_free(text)]
        assert merge(members) == text

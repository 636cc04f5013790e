"""A found plan spelled as tactics that rebuild exactly its decisions."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import meshwright as mw
from meshwright.cli.arguments.target import find_target
from meshwright.errors import TacticError
from meshwright.partitioner.decide import apply_tactics
from meshwright.partitioner.tactics import decisions_of, pin_all
from tests.app.plan import test_travel
from tests.planner.programs import MLP, deep_step, mlp_step, recurrent, shape

MESH = {"data": 4, "model": 2}
SEARCH = [mw.auto(("data", "model"), machine="tpu-v5e", budget_s=3)]


def remat_step(params, x, accumulate=2):
    """Scanned layers in a checkpoint, with gradients of two microbatches added."""

    def loss(params, x):
        @jax.checkpoint
        def layer(h, w):
            h = jnp.tanh(h @ w["up"]) @ w["down"]
            return h.reshape(-1, 4, h.shape[1] // 4).cumsum(1).reshape(h.shape), None

        h, _ = lax.scan(layer, x, params)
        return jnp.where(h.sum() > 0, jnp.mean(h**2), jnp.max(h))

    def add(total, x):
        return jax.tree.map(jnp.add, total, jax.grad(loss)(params, x)), None

    zeros = jax.tree.map(jnp.zeros_like, params)
    grads, _ = lax.scan(add, zeros, x.reshape(accumulate, -1, x.shape[-1]))
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def branching(x, w, n):
    """A loop that ends when it likes, a choice, a convolution, constants and a sort."""
    table = jnp.arange(4.0 * x.shape[1]).reshape(4, -1)

    def body(carry):
        i, h = carry
        return i + 1, lax.cond(i % 2 == 0, lambda h: h @ w, lambda h: h + table[0], h)

    h = lax.while_loop(lambda c: c[0] < n, body, (0, x))[1]
    image = lax.conv(h[None, None], w[None, None, :3, :3], (1, 1), "SAME")[0, 0]
    return jnp.sort(image), lax.top_k(h, 2), h.T @ image


LAYER = {"up": shape(1024, 4096), "down": shape(4096, 1024)}
STACK = {"up": shape(3, 1024, 4096), "down": shape(3, 4096, 1024)}
ROWS = shape(16384, 1024)
PROGRAMS = {
    "mlp": (mlp_step, (LAYER, ROWS)),
    "deep": (deep_step, ([LAYER] * 4, ROWS)),
    "recurrent": (recurrent, (shape(1024, 1024),) * 2 + (shape(5, 8192, 1024),)),
    "remat": (remat_step, (STACK, ROWS)),
    "branching": (branching, (ROWS, shape(1024, 1024), shape(dtype="int32"))),
}
ZOO = ("gpt", "moe", "t5", "resnet", "primer", "lstm", "unet", "llm")


def rebuilt(fn, args, plan):
    """The plan of the printed tactics."""
    tactics = eval(plan.code, {"mw": mw})
    return mw.partition(fn, plan.mesh, tactics, gather=plan.gather).plan(*args)


def assert_same(plan, other):
    assert decisions_of(plan.decided.work) == decisions_of(other.decided.work)
    assert (plan.inputs, plan.outputs) == (other.inputs, other.outputs)
    assert plan.counts == other.counts


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_printed_tactics_rebuild_the_decisions_of_a_searched_plan(name):
    fn, args = PROGRAMS[name]
    plan = mw.partition(fn, MESH, SEARCH).plan(*args)
    assert any(any(leaf.spec) for leaf in plan.inputs)
    assert_same(plan, rebuilt(fn, args, plan))


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_the_printed_tactics_rebuild_the_searched_train_steps_of_the_zoo(name):
    target = find_target(f"zoo/{name}.py:tiny")
    plan = mw.partition(target.fn, MESH, SEARCH).plan(*target.args)
    assert_same(plan, rebuilt(target.fn, target.args, plan))


def test_the_tactics_of_a_found_plan_are_public_and_printed():
    plan = mw.autoplan(*MLP, machine="tpu-v5e", chips=8, budget_s=2, experts=False)
    assert all(repr(tactic).startswith("mw.") for tactic in plan.tactics)
    again = mw.partition(MLP[0], plan.mesh, plan.tactics).plan(*MLP[1])
    assert_same(plan, again)
    assert_same(plan, rebuilt(*MLP, plan))
    loaded = mw.Plan.from_json(plan.to_json())
    assert loaded.code == plan.code
    assert_same(plan, rebuilt(*MLP, loaded))


def test_given_tactics_stay_as_they_are_before_what_was_found():
    given = mw.data_parallel("data", "x")
    plan = mw.partition(
        MLP[0], MESH, [given, mw.auto(["model"], machine="tpu-v4")]
    ).plan(*MLP[1])
    assert "mw.data_parallel('data', inputs='x')," in plan.code
    assert_same(plan, rebuilt(*MLP, plan))


TACTICS = [
    mw.shard({"x": 0, "params.*": mw.FIRST_DIVISIBLE, "y": mw.REPLICATED}, "data"),
    mw.replicate("x"),
    mw.replicate("x", "params.**", axis="data"),
    mw.replicate("x", axis=("data", "model")),
    mw.data_parallel("data"),
    mw.data_parallel("data", inputs=["x", "y"]),
    mw.zero(3, "data", params="params.**"),
    mw.fsdp("data"),
    mw.megatron("model"),
    mw.sequence_parallel("model"),
    mw.expert_parallel("model"),
    mw.recompute(["dot_general", "a.py:7 dot_general"]),
    mw.cut({"a.py:7 dot_general": "sum 1", "a.py:8 add": mw.REPLICATED}, "model"),
    mw.pin({"x": "[data, -]", "a.py:7 dot_general": "sum [model]; reduce model"}),
    mw.auto("model", machine="h100", memory=1e9, budget_s=3.0, seed=4),
]


@pytest.mark.parametrize("tactic", TACTICS, ids=[str(t)[:20] for t in TACTICS])
def test_the_repr_of_a_tactic_is_the_code_that_makes_it(tactic):
    assert eval(repr(tactic), {"mw": mw}) == tactic


@pytest.mark.parametrize("name", ["zero and a cut", "recomputed", "dims"])
def test_a_pin_of_all_decisions_rebuilds_a_plan_with_sub_axes(name):
    tactics, _ = test_travel.CASES[name]
    args = test_travel.PARAMS, test_travel.X
    captured = mw.partition(test_travel.train, MESH).capture(*args)
    rewriting = [tactic for tactic in tactics if tactic.rewrite is not None]
    work, start = (
        apply_tactics(captured, mw.Mesh(MESH), t) for t in (tactics, rewriting)
    )
    assert work.sub_axes["data"] == ("data:0", "data:1")
    again = apply_tactics(captured, mw.Mesh(MESH), [*rewriting, pin_all(work, start)])
    assert decisions_of(again) == decisions_of(work)


def test_a_pin_says_what_it_cannot_do():
    fn, args = MLP

    def refusal(pins, before=()):
        with pytest.raises(TacticError) as error:
            mw.partition(fn, MESH, [*before, mw.pin(pins)]).plan(*args)
        return str(error.value)

    assert "'rows' of x is no axis of the mesh, which has data" in refusal(
        {"x": "[rows, -]"}
    )
    assert "names 1 dims, but x has 2 dims" in refusal({"x": "[data]"})
    assert "cannot read 'data, -' of x; wanted '[data, -]'" in refusal({"x": "data, -"})
    assert "an axis is used twice" in refusal({"x": "[data, data]"})
    assert "has 1 results, and no result 1" in refusal({"x": "result 1: keep [-, -]"})
    assert "which has 2 dims" in refusal({"x": "keep [-]"})
    assert "x cannot be split along 'data': 'data' cuts another dim" in refusal(
        {"x": "[-, data]"}, [mw.shard({"x": 0}, "data")]
    )
    assert "a dim of x is split along model, data by an earlier" in refusal(
        {"x": "[data.model, -]"},
        [mw.shard({"x": 0}, "model"), mw.shard({"x": 0}, "data")],
    )
    assert "pattern 'z' matches nothing" in refusal({"z": "[data]"})
    assert "names no op" in refusal({"z z": "[data]"})
    with pytest.raises(TacticError, match="wanted a text such as"):
        mw.pin({"x": 0})
    with pytest.raises(TacticError, match="wants a mapping"):
        mw.pin("x")


def test_a_pin_propagates_nothing():
    plan = mw.partition(MLP[0], MESH, [mw.pin({"x": "[data, -]"})]).plan(*MLP[1])
    assert plan.spec("x") == jax.P("data", None)
    assert [leaf.path for leaf in plan.inputs if any(leaf.spec)] == ["x"]
    assert plan.counts["all_reduce"] == 0

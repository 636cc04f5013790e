import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.errors import TacticError
from tests.partitioner.tactics import models
from tests.partitioner.tactics.models import normal
from zoo import gpt

MESH = {"data": 2, "model": 4}
TACTICS = [mw.data_parallel("data"), mw.megatron("model", vocabulary=False)]


def cuts(plan):
    """The dim of each parameter that the axis "model" cuts."""
    return {
        leaf.path.removeprefix("state.p."): leaf.spec.index(("model",))
        for leaf in plan.inputs
        if leaf.path.startswith("state.p.") and ("model",) in leaf.spec
    }


def on_model(plan):
    """Executions of collectives that involve the axis "model", by kind."""
    found = {}
    for c in plan.collectives:
        if "model" in c.axes:
            found[c.kind] = found.get(c.kind, 0) + c.executions
    return found


def test_a_matmul_by_columns_then_one_by_rows():
    fn, args = models.mlp()
    step = mw.partition(fn, MESH, TACTICS)
    plan = step.plan(*args)
    assert cuts(plan) == {"a": 1, "b": 0, "c": 0}
    assert on_model(plan) == {"all_reduce": 1}
    assert step.check(*args).ok


BLOCKS = {
    "llama": (
        models.llama_block,
        models.llama_weights(),
        {"q": 1, "k": 1, "v": 1, "o": 0, "g": 1, "u": 1, "w": 0},
    ),
    "bert": (
        models.bert_block,
        models.bert_weights(),
        {"q": 1, "k": 1, "v": 1, "qb": 0, "kb": 0, "vb": 0, "o": 0}
        | {"u": 1, "ub": 0, "w": 0},
    ),
    "fused heads": (
        models.fused_block,
        models.fused_weights(),
        {"f": 1, "o": 0, "u": 1, "w": 0},
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_has_two_sums_forward_and_two_backward(name):
    block, weights, wanted = BLOCKS[name]
    fn, args = models.language_model(block, weights, layers=2)
    plan = mw.partition(fn, MESH, TACTICS).plan(*args)
    assert cuts(plan) == {f"l.{i}.{n}": d for i in (0, 1) for n, d in wanted.items()}
    (sums,) = on_model(plan).items()
    # with the norm last, gradients of q, k, v may meet the residual's one by one
    most = 2 * 6 if name == "bert" else 2 * 4
    assert sums[0] == "all_reduce"
    assert 2 * 4 <= sums[1] <= most


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_in_a_scan_are_cut_alike_and_give_the_same_numbers(name):
    block, weights, wanted = BLOCKS[name]
    fn, args = models.language_model(block, weights, layers=2, stacked=True)
    step = mw.partition(fn, MESH, TACTICS)
    plan = step.plan(*args)
    assert cuts(plan) == {f"l.{n}": d + 1 for n, d in wanted.items()}
    assert set(on_model(plan)) == {"all_reduce"}
    assert step.check(*args).ok


def test_two_heads_of_keys_on_four_devices_leave_attention_whole():
    weights = models.llama_weights(kv_heads=2)
    fn, args = models.language_model(models.llama_block, weights, layers=1)
    step = mw.partition(fn, MESH, TACTICS)
    told = r"leaves \d\d% of the work .* along 'model', most of it at dot_general"
    with pytest.warns(mw.MeshwrightWarning, match=told):
        plan = step.plan(*args)
    assert step.check(*args).ok
    found = cuts(plan)
    assert {n: found[f"l.0.{n}"] for n in "guw"} == {"g": 1, "u": 1, "w": 0}


@pytest.mark.parametrize(
    "parts",
    [
        lambda h: jnp.split(h, 3, axis=-1),
        lambda h: (h[:, :16], h[:, 16:32], h[:, 32:]),
    ],
)
def test_columns_of_parts_that_devices_do_not_have_are_sent_to_them(parts):
    def predict(weights, x):
        q, k, v = parts(x @ weights["f"])
        return (q * k + v) @ weights["o"]

    args = {"f": normal(16, 48), "o": normal(16, 16)}, normal(8, 16)
    step = mw.partition(predict, MESH, [mw.megatron("model")])
    counts = step.plan(*args).counts
    assert counts["permute"] > 0
    assert counts["all_gather"] == 0
    assert step.check(*args).ok


def test_weights_whose_columns_the_axis_does_not_divide_are_told_of():
    def predict(weights, x):
        x = jnp.tanh(x @ weights["f"]) @ weights["o"]
        return jnp.tanh(x @ weights["up"]) @ weights["down"]

    weights = {
        "f": normal(16, 50), "o": normal(50, 16),
        "up": normal(16, 64), "down": normal(64, 16),
    }  # fmt: skip
    step = mw.partition(predict, MESH, [mw.megatron("model")])
    with pytest.warns(mw.MeshwrightWarning, match="leaves 44% of the work"):
        plan = step.plan(weights, normal(8, 16))
    assert tuple(plan.spec("weights.up")) == (None, "model")
    assert plan.steps[-1].refused[-1].startswith("44% of the work (FLOPs of matrix")


def test_the_residual_stream_is_not_cut_though_a_first_layer_makes_it():
    def predict(weights, x):
        x = x @ weights["stem"]
        for w in weights["blocks"]:
            x = x + jnp.tanh(x @ w["u"]) @ w["w"]
        return x

    blocks = [{"u": normal(16, 64), "w": normal(64, 16)} for _ in range(2)]
    weights = {"stem": normal(8, 16), "blocks": blocks}
    plan = mw.partition(predict, MESH, [mw.megatron("model")]).plan(
        weights, normal(4, 8)
    )
    assert plan.spec("weights.stem") == plan.spec("x")
    assert tuple(plan.spec("weights.blocks.0.u")) == (None, "model")
    assert plan.counts["all_reduce"] == 2


def test_an_adapter_of_low_rank_follows_the_matrix_that_it_adapts():
    def predict(weights, x):
        x = jnp.tanh(x @ weights["a"] + (x @ weights["l"]) @ weights["r"])
        return x @ weights["c"]

    weights = {
        "a": normal(16, 32), "l": normal(16, 4),
        "r": normal(4, 32), "c": normal(32, 16),
    }  # fmt: skip
    plan = mw.partition(predict, MESH, [mw.megatron("model")]).plan(
        weights, normal(8, 16)
    )
    assert tuple(plan.spec("weights.r")) == (None, "model")
    assert tuple(plan.spec("weights.l")) == (None, None)
    assert plan.counts["all_reduce"] == 1


def test_pairs_of_convolutions_are_sharded_by_features_if_no_matmuls_are():
    def conv(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def predict(weights, x):
        for w in weights["blocks"]:
            h = conv(x, w["wide"])
            h = (h - h.mean((0, 1, 2))) * w["scale"]
            x = x + conv(jax.nn.relu(h), w["narrow"])
        return x.mean((1, 2)) @ weights["head"]

    block = {
        "wide": normal(3, 3, 8, 32),
        "scale": normal(32),
        "narrow": normal(1, 1, 32, 8),
    }
    weights = {"blocks": [block] * 2, "head": normal(8, 6)}
    step = mw.partition(predict, MESH, [mw.megatron("model")])
    x = normal(2, 4, 4, 8)
    plan = step.plan(weights, x)
    assert tuple(plan.spec("weights.blocks.1.wide")) == (None, None, None, "model")
    assert tuple(plan.spec("weights.blocks.1.narrow")) == (None, None, "model", None)
    assert tuple(plan.spec("weights.blocks.1.scale")) == ("model",)
    assert plan.counts["all_reduce"] == 2
    assert step.check(weights, x).ok


def test_an_lstm_has_no_pair_and_the_error_says_what_there_is():
    fn, args = models.lstm()
    with pytest.raises(TacticError, match=r"no pair of matmuls.*1 matmuls"):
        mw.partition(fn, MESH, [mw.megatron("model")]).plan(*args)


def test_a_refused_trial_leaves_nothing_behind():
    fn, args = models.lstm()
    work = mw.partition(fn, MESH, [mw.data_parallel("data")]).decide(*args).work
    mark, conflicts = work.state.mark(), dict(work.state.conflicts)
    with pytest.raises(TacticError):
        mw.megatron("model").apply(work)
    assert work.state.mark() == mark
    assert work.state.conflicts == conflicts
    assert not work.refusals


@pytest.mark.slow
def test_t32_has_the_collectives_that_partir_prints():
    fn, args = gpt.t32()
    mesh = {"batch": 8, "model": 4}
    both = [mw.data_parallel("batch"), mw.megatron("model", vocabulary=False)]
    for tactics, sums in ((both, 418), (both[1:], 128)):
        counts = mw.partition(fn, mesh, tactics, gather="at_use").plan(*args).counts
        assert counts["all_reduce"] == sum(counts.values()) == sums


def test_layers_sliced_from_one_array_are_products_of_their_own():
    """An unrolled loop over many layers: partial sums of all count, and their products."""

    def step(p, x):
        def loss(p):
            h = x
            for i in range(12):
                h = h + jnp.tanh(h @ p["up"][i]) @ p["down"][i]
            return jnp.sum(h)

        return jax.tree.map(lambda w, g: w - g, p, jax.grad(loss)(p))

    p = {"up": normal(12, 16, 32), "down": normal(12, 32, 16)}
    tactics = [mw.megatron("model"), mw.sequence_parallel("model")]
    plan = mw.partition(step, {"model": 4}, tactics).plan(p, normal(8, 16))
    assert plan.spec("p.up") == jax.P(None, None, "model")
    assert plan.counts["reduce_scatter"] >= 11  # the last one is summed at once

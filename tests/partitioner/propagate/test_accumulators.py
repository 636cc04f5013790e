"""Gradients that a loop accumulates are summed over devices once, after the loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import meshwright as mw
from meshwright.partitioner.propagate.recurrence import recurrent_totals
from meshwright.partitioner.propagate.sum_routes import SumRoutes
from tests.partitioner.propagate.programs import engine, f32, made, the

LAYERS, WIDTH, MICROBATCHES, BATCH = 3, 16, 4, 16
MESH, CUT = {"data": 8}, [mw.shard({"xs": 1}, "data")]


def normal(*shape, seed=0):
    drawn = np.random.default_rng(seed).normal(size=shape)
    return (drawn / np.sqrt(WIDTH)).astype(np.float32)


XS = normal(MICROBATCHES, BATCH, WIDTH, seed=1)


def stacked():
    return {
        "up": normal(LAYERS, WIDTH, WIDTH),
        "down": normal(LAYERS, WIDTH, WIDTH, seed=2),
        "bias": normal(LAYERS, WIDTH),
    }


def listed():
    return [jax.tree.map(lambda a, i=i: a[i], stacked()) for i in range(LAYERS)]


def layer(h, w):
    up, down, bias = (w[name].astype(h.dtype) for name in ("up", "down", "bias"))
    return jnp.tanh(h @ up) @ down + bias


def scanned(layer_fn, params, h):
    return lax.scan(lambda h, w: (layer_fn(h, w), None), h, params)[0]


def indexed(layer_fn, params, h):
    for i in range(LAYERS):
        h = layer_fn(h, jax.tree.map(lambda a, i=i: a[i], params))
    return h


def indexed_in_a_loop(layer_fn, params, h):
    def body(h, i):
        return layer_fn(h, jax.tree.map(lambda a: a[i], params)), None

    return lax.scan(body, h, jnp.arange(LAYERS))[0]


def one_after_another(layer_fn, params, h):
    for w in params:
        h = layer_fn(h, w)
    return h


def accumulating(model, dtype, layer_fn=layer):
    """A step that adds up gradients over microbatches, and moves the parameters."""

    def loss(params, x):
        return (
            model(layer_fn, params, x.astype(dtype)).astype(jnp.float32) ** 2
        ).mean()

    def step(params, xs):
        def microbatch(total, x):
            gradients = jax.grad(loss)(params, x)
            return jax.tree.map(lambda t, g: t + g.astype(t.dtype), total, gradients), 0

        total = jax.tree.map(jnp.zeros_like, params)
        total, _ = lax.scan(microbatch, total, xs)
        return jax.tree.map(lambda p, g: p - 0.1 * g / len(xs), params, total)

    return step


def sums(step, *args):
    """All-reduces of a step; it has no other collective."""
    counts = mw.partition(step, MESH, CUT).plan(*args).counts
    assert sum(counts.values()) == counts["all_reduce"]
    return counts["all_reduce"]


LAYER_FNS = {"plain": layer, "remat": jax.checkpoint(layer)}


@pytest.mark.parametrize("layer_fn", LAYER_FNS.values(), ids=LAYER_FNS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("model", [scanned, indexed, indexed_in_a_loop])
def test_gradients_of_stacked_weights_are_summed_once_each(model, dtype, layer_fn):
    """By a layer scan, by `ws[i]` in Python and in a scan, each with conversions."""
    assert sums(accumulating(model, dtype, layer_fn), stacked(), XS) == 3


@pytest.mark.parametrize("layer_fn", LAYER_FNS.values(), ids=LAYER_FNS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_gradients_of_unrolled_layers_are_summed_once_each(dtype, layer_fn):
    step = accumulating(one_after_another, dtype, layer_fn)
    assert sums(step, listed(), XS) == 3 * LAYERS


@pytest.mark.parametrize(
    ("model", "dtype"), [(scanned, jnp.bfloat16), (indexed, jnp.float32)]
)
def test_sums_after_the_loop_equal_the_original(model, dtype):
    step = accumulating(model, dtype, jax.checkpoint(layer))
    assert mw.partition(step, MESH, CUT).check(stacked(), XS).ok


def test_the_sum_of_gradients_in_bfloat16_is_made_in_the_accumulators_float32():
    """Each device rounds its own addends as before; their sum is not rounded again."""
    plan = mw.partition(accumulating(scanned, jnp.bfloat16), MESH, CUT).plan(
        stacked(), XS
    )
    assert all(each.value.startswith("f32") for each in plan.collectives)


def test_without_a_loop_to_accumulate_a_scan_sums_each_layer_in_its_own_dtype():
    """One sum of all layers would move as many bytes, and beside no computation."""

    def step(params, xs):
        return accumulating(scanned, jnp.bfloat16)(params, xs[:1])

    plan = mw.partition(step, MESH, CUT).plan(stacked(), XS)
    assert plan.counts["all_reduce"] == 3 * LAYERS
    assert all(each.value.startswith("bf16") for each in plan.collectives)


def test_two_iterations_do_not_pay_for_a_sum_of_twice_the_bytes():
    step = accumulating(one_after_another, jnp.bfloat16)
    assert sums(step, listed(), XS[:2]) == 3 * LAYERS * 2
    assert sums(step, listed(), XS[:3]) == 3 * LAYERS


def test_a_whole_addend_on_the_way_is_added_on_one_device():
    """Weight decay is the same on all devices, and part of each microbatch's gradient."""

    def with_decay(model):
        def loss(params, x):
            decay = sum((w**2).sum() for w in jax.tree.leaves(params))
            return (model(layer, params, x) ** 2).mean() + 0.01 * decay

        def step(params, xs):
            def microbatch(total, x):
                return jax.tree.map(jnp.add, total, jax.grad(loss)(params, x)), 0

            total = jax.tree.map(jnp.zeros_like, params)
            return lax.scan(microbatch, total, xs)[0]

        return step

    step = mw.partition(with_decay(scanned), MESH, CUT)
    assert step.plan(stacked(), XS).counts["all_reduce"] == 3
    assert step.check(stacked(), XS).ok


def test_a_total_of_whole_addends_is_not_summed_over_devices():
    def step(w, xs):
        def microbatch(total, x):
            return (total[0] + x.T @ x, total[1] + 2 * w), 0

        return lax.scan(microbatch, (jnp.zeros_like(w), jnp.zeros_like(w)), xs)[0]

    assert sums(step, normal(WIDTH, WIDTH), XS) == 1


def test_branches_leave_partial_sums_to_the_accumulator():
    """A branch that skips a microbatch adds zeros, another a value that is whole."""

    def step(w, xs, flags):
        def microbatch(total, batch):
            x, flag = batch
            addend = lax.switch(
                flag, [lambda x: x.T @ x, jnp.zeros_like, lambda x: w], x
            )
            return total + addend, 0

        return lax.scan(microbatch, jnp.zeros_like(w), (xs, flags))[0]

    args = normal(WIDTH, WIDTH), XS, np.array([0, 1, 2, 0])
    jitted = mw.partition(step, MESH, CUT)
    assert jitted.plan(*args).counts["all_reduce"] == 1
    assert jitted.check(*args).ok


def test_a_gradient_that_is_also_read_is_summed_in_each_iteration():
    def step(w, xs):
        def microbatch(total, x):
            gradient = (x.T @ x).astype(jnp.bfloat16)
            return total + gradient.astype(jnp.float32), jnp.abs(gradient).max()

        return lax.scan(microbatch, jnp.zeros_like(w), xs)

    counts = mw.partition(step, MESH, CUT).plan(normal(WIDTH, WIDTH), XS).counts
    assert counts["all_reduce"] == MICROBATCHES


# -- routes ---------------------------------------------------------------------------


def test_a_route_leads_through_linear_ops_with_one_reader_to_the_accumulator():
    def fn(w, xs):
        def body(total, x):
            sent = (x.T @ w).astype(jnp.bfloat16)
            read = jnp.pad(sent, ((0, 8), (0, 0))).astype(jnp.float32)
            return total + read, jnp.sin(x.sum())

        return lax.scan(body, jnp.zeros((16, 8)), xs)

    run = engine(fn, f32(16, 8), f32(5, 16, 8))
    routes = SumRoutes(run.graph)
    (loop,) = (n for n in run.graph.nodes if n.wire and n.wire.result == 0)
    product = made(the(run, "dot_general"))
    narrow = made(the(run, "convert_element_type"))
    padded = made(the(run, "pad"))
    assert routes.accumulator_of(narrow) is loop
    assert routes.accumulator_of(padded) is loop
    assert routes.accumulator_of(made(the(run, "reduce_sum"))) is None
    assert routes.accumulator_of(product) is None  # rounded, which is not linear


# -- readers that want a total cut ----------------------------------------------------

STEPS = 5


def recurrent_loss(params, xs):
    def cell(state, x):
        return jnp.tanh(state @ params["w"] + x @ params["v"]), None

    state = lax.scan(cell, jnp.zeros((xs.shape[1], WIDTH)), xs)[0]
    return (state**2).mean()


def recurrent_step(params, xs):
    gradients = jax.grad(recurrent_loss)(params, xs)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


WEIGHTS = {"w": normal(WIDTH, WIDTH), "v": normal(WIDTH, WIDTH, seed=2)}
SEQUENCES = normal(STEPS, BATCH, WIDTH, seed=3)


def test_under_zero_3_a_recurrent_weight_is_reduce_scattered_once_after_the_loop():
    step = mw.partition(
        recurrent_step, MESH, [*CUT, mw.zero(3, "data", params="params.**")]
    )
    counts = step.plan(WEIGHTS, SEQUENCES).counts
    assert (counts["reduce_scatter"], counts["all_gather"]) == (2, 2)
    assert counts["all_reduce"] == 0
    assert step.check(WEIGHTS, SEQUENCES).ok


def test_under_zero_3_with_microbatches_it_is_once_for_each_microbatch():
    def fn(params, xs):
        def microbatch(total, x):
            gradients = jax.grad(recurrent_loss)(params, x)
            return jax.tree.map(jnp.add, total, gradients), 0

        total = lax.scan(microbatch, jax.tree.map(jnp.zeros_like, params), xs)[0]
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, total)

    cut = [mw.shard({"xs": 2}, "data"), mw.zero(3, "data", params="params.**")]
    xs = np.stack([SEQUENCES] * MICROBATCHES)
    counts = mw.partition(fn, MESH, cut).plan(WEIGHTS, xs).counts
    assert counts["reduce_scatter"] == 2 * MICROBATCHES


def test_under_zero_3_totals_of_microbatches_are_stored_cut():
    """Their sums are reduce-scattered in each iteration, so that none is ever whole."""
    step = accumulating(scanned, jnp.bfloat16)
    cut = [*CUT, mw.zero(3, "data", params="params.**")]
    plan = mw.partition(step, MESH, cut).plan(stacked(), XS)
    assert plan.counts["reduce_scatter"] == 3 * LAYERS * MICROBATCHES
    assert plan.counts["all_reduce"] == 0


def test_totals_of_a_loop_that_carries_only_totals_and_counters_are_not_recurrent():
    def fn(params, xs):
        def body(carry, x):
            total, i = carry
            return (total + x.T @ params["w"] * i, i + 1), None

        return lax.scan(body, (jnp.zeros((8, 8)), 0), xs)[0]

    run = engine(fn, {"w": f32(16, 8)}, f32(5, 16, 8))
    assert recurrent_totals(run.graph, SumRoutes(run.graph)) == set()
    run = engine(jax.grad(recurrent_loss), WEIGHTS, SEQUENCES)
    totals = recurrent_totals(run.graph, SumRoutes(run.graph))
    shapes = [run.graph.values[total].shape for total in totals]
    assert shapes == [(WIDTH, WIDTH)] * 2

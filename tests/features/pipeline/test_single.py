"""Pipelines in a single program, whose stages are an axis of the mesh."""

import jax
import jax.numpy as jnp
import optax
import pytest

import meshwright as mw
from meshwright.errors import PlanError, StageError
from tests.features.pipeline.models import (
    BATCH,
    PARAMS,
    layer,
    train_step,
    unmarked_step,
)

LAYERS = jax.tree.map(lambda *each: jnp.stack(each), *PARAMS["layers"])
STACKED = {**PARAMS, "layers": LAYERS}
TACTICS = [mw.data_parallel("data", "batch.**"), mw.megatron("model")]


def loss_of(params, batch, body=layer):
    h = params["embedding"][batch["x"]]
    h, _ = jax.lax.scan(lambda h, w: (body(h, w), None), h, params["layers"])
    scores = jax.nn.log_softmax(h @ params["embedding"].T)
    return -jnp.mean(jnp.take_along_axis(scores, batch["y"][..., None], -1))


def stacked_step(params, batch):
    return train_step(params, batch, loss_of)


def remat_step(params, batch):
    body = jax.checkpoint(layer)
    return train_step(params, batch, lambda p, b: loss_of(p, b, body))


@pytest.mark.parametrize(
    ("fn", "mesh", "tactics", "microbatches"),
    [
        (stacked_step, {"stage": 2, "data": 2, "model": 2}, TACTICS, 4),
        (remat_step, {"stage": 4, "data": 2}, TACTICS[:1], 8),
    ],
)
def test_a_single_program_equals_the_step_on_one_device(
    fn, mesh, tactics, microbatches
):
    step = mw.pipeline(fn, mesh, tactics, microbatches=microbatches, form="single")
    report = step.check(STACKED, BATCH)
    assert report.ok, report
    params, _ = step(STACKED, BATCH)
    up = params["layers"]["up"]
    assert up.sharding.spec[0] == "stage"  # each stage has its own layers' weights
    assert up.addressable_shards[0].data.shape[0] == 4 // mesh["stage"]


def test_stages_hand_on_microbatches_by_permutes_alone():
    step = mw.pipeline(stacked_step, {"stage": 4}, microbatches=8, form="single")
    lowered = step.plan(STACKED, BATCH).decided.lowered
    loops = [op for op in lowered.program.ops if op.kind == "scan"]
    kinds = [{op.kind for op in loop.bodies[0].walk()} for loop in loops]
    collectives = {"all_reduce", "all_gather", "all_to_all", "reduce_scatter"}
    assert [kind & (collectives | {"permute"}) for kind in kinds] == [{"permute"}] * 2


def test_optimizer_state_is_on_the_stage_of_its_layer():
    adam = optax.adam(0.01)

    def step_fn(params, state, batch):
        grads = jax.grad(loss_of)(params, batch)
        updates, state = adam.update(grads, state)
        return optax.apply_updates(params, updates), state

    state = adam.init(STACKED)
    step = mw.pipeline(step_fn, {"stage": 4}, microbatches=4, form="single")
    shardings = step.plan(STACKED, state, BATCH).in_shardings
    moments = jax.tree.leaves(
        (shardings[1][0].mu["layers"], shardings[1][0].nu["layers"])
    )
    assert [each.spec[0] for each in moments] == ["stage"] * 6


def carried_sum(params, batch):
    def body(carry, weights):
        h, total = carry
        h = layer(h, weights)
        return (h, total + h.sum()), None

    h = params["embedding"][batch["x"]]
    return jax.lax.scan(body, (h, 0.0), params["layers"])[0][1]


def batch_norm(params, batch):
    def body(h, weights):
        return layer(h - h.mean(0), weights), None

    h = params["embedding"][batch["x"]]
    return jax.lax.scan(body, h, params["layers"])[0].mean()


@pytest.mark.parametrize(
    ("fn", "params", "stages", "words"),
    [
        (unmarked_step, PARAMS, 2, "has no loop over layers"),
        (stacked_step, STACKED, 3, "4 iterations, which 3 stages do not divide"),
        (carried_sum, STACKED, 2, r"test_single.py:\d+.* no dim of the batch"),
        (batch_norm, STACKED, 2, r"all microbatches at once .*test_single.py:\d+"),
    ],
)
def test_a_step_without_equal_stages_is_refused(fn, params, stages, words):
    step = mw.pipeline(fn, {"stage": stages}, microbatches=2, form="single")
    with pytest.raises(StageError, match=words):
        step.plan(params, BATCH)


@pytest.mark.parametrize(
    ("mesh", "options", "words"),
    [
        ([{"data": 2}], {}, "wants one mesh with an axis 'stage'"),
        ({"stage": 2}, {"schedule": "gpipe"}, "has no schedule="),
        ({"stage": 2}, {"stages": 2}, "has no stages="),
        ({"stage": 2}, {"tactics": {"0": []}}, "same tactics for all stages"),
        ({"stage": 2}, {"microbatches": 1}, "at least 2 microbatches"),
        ({"stage": 2}, {"form": "double"}, "wanted 'programs' or 'single'"),
    ],
)
def test_choices_that_a_single_program_has_not_are_refused(mesh, options, words):
    with pytest.raises(PlanError, match=words):
        mw.pipeline(stacked_step, mesh, **{"form": "single", **options})

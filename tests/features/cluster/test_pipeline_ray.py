"""Pipelined steps whose stages run on slices of 4 Ray workers of 2 devices each."""

import os
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import ClusterError, PlanError, StageError
from meshwright.features.pipeline.stages import lowered_step
from tests.features.pipeline.models import BATCH, PARAMS, train_step, unmarked_step

pytestmark = pytest.mark.cluster
pytest.importorskip("ray")

DATA = [mw.data_parallel("data")]


@pytest.fixture(scope="module")
def cluster():
    with mw.cluster("local:4x2") as found:
        yield found


def slices(cluster, *sizes):
    return [cluster.slice(each) for each in sizes]


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_four_stages_on_four_processes_equal_the_step_on_one_device(cluster, schedule):
    parts = slices(cluster, *[{"data": 2}] * 4)
    step = mw.pipeline(unmarked_step, parts, DATA, microbatches=4, schedule=schedule)
    report = step.check(PARAMS, BATCH)
    assert report.ok, report


def test_stages_over_several_processes_train_as_in_this_process(cluster):
    mesh = {"data": 2, "model": 2}
    tactics = [*DATA, mw.megatron("model")]
    parts = slices(cluster, mesh, mesh)
    remote = mw.pipeline(train_step, parts, tactics, microbatches=4)
    local = mw.pipeline(train_step, [mesh, mesh], tactics, microbatches=4)
    own, theirs = PARAMS, PARAMS
    for _ in range(3):
        own, loss = local(own, BATCH)
        theirs, handle = remote(theirs, BATCH)  # handles, which stay on the workers
        np.testing.assert_allclose(float(handle), float(loss), rtol=1e-6)
    for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b.result(), atol=1e-5)


def test_outputs_of_all_microbatches_are_joined_on_the_workers(cluster):
    def predict(params, batch):
        h = mw.stage(params["embedding"][batch["x"]], "middle")
        return jnp.tanh(h @ PARAMS["layers"][0]["up"])

    step = mw.pipeline(
        predict, slices(cluster, {"data": 2}, {"data": 4}), DATA, microbatches=2
    )
    report = step.check(PARAMS, BATCH)
    assert report.ok, report


def too_large(params, batch, marks):
    """A loss whose second half sorts more numbers than any machine has memory for."""
    h = params["embedding"][batch["x"]]
    h = jnp.tanh(h @ params["layers"][0]["up"])
    h = mw.stage(h, "upper") if marks else h
    large = jnp.broadcast_to(h[..., None], (*h.shape, 2**42))
    return jnp.sort(large, -1)[..., :2].mean()


def test_a_stage_that_fails_on_the_workers_is_named_and_nothing_hangs(cluster):
    def step_fn(params, batch):
        return too_large(params, batch, True)

    parts = slices(cluster, {"data": 4}, {"data": 4})
    step = mw.pipeline(step_fn, parts, DATA, microbatches=2)
    start_s = time.monotonic()
    loss = step(PARAMS, BATCH)
    words = r"stage 'upper', forward pass \(.* at .*test_pipeline_ray.py:\d+.*memory"
    with pytest.raises(ClusterError, match=words):
        float(loss)
    assert time.monotonic() - start_s < 60
    again = mw.pipeline(train_step, parts, DATA, microbatches=2)
    assert again.check(PARAMS, BATCH).ok  # the workers go on


def test_a_stage_that_calls_python_is_refused_with_its_name_and_line(cluster):
    def step_fn(params, batch):
        h = mw.stage(jnp.tanh(params["embedding"][batch["x"]]), "upper")
        h = jnp.tanh(h @ params["layers"][0]["up"])
        called = jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), h.dtype), h.mean())
        return h.mean() * called

    parts = slices(cluster, {"data": 1}, {"data": 1})
    step = mw.pipeline(step_fn, parts, microbatches=2, statistics="microbatch")
    words = r"stage 'upper' failed .*pure_callback at .*test_pipeline_ray.*calls Python"
    with pytest.raises(StageError, match=words):
        step(PARAMS, BATCH)


def test_slices_beside_submeshes_are_refused(cluster):
    (part,) = slices(cluster, {"data": 2})
    with pytest.raises(PlanError, match="some are not"):
        mw.pipeline(train_step, [part, {"data": 2}], DATA)


def test_a_worker_that_is_killed_amid_a_step_ends_it_with_an_error(cluster):
    parts = slices(cluster, {"data": 4}, {"data": 4})
    step = mw.pipeline(train_step, parts, DATA, microbatches=4)
    params, _ = step(PARAMS, BATCH)
    place = cluster.status().places[2]
    os.kill(int(place.rpartition(":")[2]), signal.SIGKILL)

    def train():
        state = params
        for _ in range(100):
            state, loss = step(state, BATCH)
            float(loss)

    with pytest.raises(ClusterError, match=r"lost|gone|no longer"):
        train()
    cluster.wait_until_ready()
    cluster.skip_refused()
    again = mw.pipeline(train_step, parts, DATA, microbatches=2)
    assert again.check(PARAMS, BATCH).ok


def reducing_step(params, batch):
    """A value whose upper stage sums over its devices in each of many rounds."""
    layer = params["layers"][0]

    def round_of(_, h):
        return jnp.tanh(h + jnp.tanh(h @ layer["up"]) @ layer["down"])

    h = mw.stage(params["embedding"][batch["x"]], "upper")
    return jax.lax.fori_loop(0, params["rounds"], round_of, h)


def test_a_worker_that_dies_within_a_collective_ends_the_step_for_all(cluster):
    parts = slices(cluster, {"model": 4}, {"model": 4})
    step = mw.pipeline(reducing_step, parts, [mw.megatron("model")], microbatches=2)
    plan = step.plan({**PARAMS, "rounds": 2}, BATCH)
    assert plan.stages[1].bytes.state == 2 * 16 * 32 + 4  # both weights cut in four
    assert step.check({**PARAMS, "rounds": 2}, BATCH).ok  # all is compiled
    place = cluster.status().places[3]
    endless = step({**PARAMS, "rounds": 2**31 - 1}, BATCH)  # some hours
    time.sleep(5)
    os.kill(int(place.rpartition(":")[2]), signal.SIGKILL)
    start_s = time.monotonic()
    with pytest.raises(ClusterError, match=r"worker 3 is gone"):
        endless.result()
    assert time.monotonic() - start_s < 60
    cluster.wait_until_ready()
    cluster.skip_refused()
    assert step.check({**PARAMS, "rounds": 2}, BATCH).ok


def test_values_that_are_sent_in_parts_arrive_on_slices_of_other_sizes(
    cluster, monkeypatch
):
    monkeypatch.setattr(lowered_step, "LEAST_PARTED", 1)
    tactics = [*DATA, mw.megatron("model")]
    parts = slices(cluster, {"data": 2, "model": 2}, {"data": 1, "model": 2})
    for places in (parts, parts[::-1]):
        step = mw.pipeline(train_step, places, tactics, microbatches=2)
        report = step.check(PARAMS, BATCH)
        assert report.ok, report

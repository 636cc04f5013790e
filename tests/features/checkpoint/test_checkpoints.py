"""Checkpoints are saved, kept, restored onto any mesh, and never half there."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import meshwright as mw
from meshwright.errors import CheckpointError
from tests.features.checkpoint.states import (
    MESHES,
    assert_same,
    make_state,
    put,
    shardings_on,
)


def test_a_state_comes_back_with_what_was_saved_beside_it(tmp_path):
    state = make_state(3)
    with mw.Checkpoints(tmp_path / "new" / "run") as checkpoints:
        checkpoints.save(
            7, state, plan="{}", position={"batches": 7}, metrics={"loss": 0.5}
        )
        checkpoints.wait()
        restored = checkpoints.restore(jax.eval_shape(lambda: state))
    assert_same(restored.state, state)
    assert (restored.step, restored.plan) == (7, "{}")
    assert restored.position == {"batches": 7}
    assert restored.metrics == {"loss": 0.5}
    assert "step 7" in str(restored)


@pytest.mark.parametrize("name", MESHES)
def test_a_state_is_restored_onto_any_mesh_bit_for_bit(name, saved_on_a_mesh):
    directory, state = saved_on_a_mesh
    shardings = shardings_on(name, state)
    checkpoints = mw.Checkpoints(directory, read_only=True)
    restored = checkpoints.restore(jax.eval_shape(lambda: state), shardings)
    assert_same(restored.state, state)
    pairs = zip(
        jax.tree.leaves(restored.state), jax.tree.leaves(shardings), strict=True
    )
    for leaf, sharding in pairs:
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)


@pytest.fixture(scope="module")
def saved_on_a_mesh(tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved")
    state = put(make_state(5), shardings_on("four by two", make_state(5)))
    with mw.Checkpoints(directory) as checkpoints:
        checkpoints.save(1, state)
    return directory, state


def test_a_plan_says_where_a_state_is_restored(tmp_path):
    def step(state, x):
        return {"w": state["w"] - x.mean() * state["w"]}, x.sum()

    state = {"w": jnp.arange(64.0).reshape(8, 8)}
    x = jnp.ones((8, 8))
    run = mw.partition(step, {"data": 8}, [mw.shard({"state.w": 0}, "data")])
    plan = run.plan(state, x)
    with mw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, plan=plan)
        checkpoints.wait()
        restored = checkpoints.restore(state, plan)
    assert restored.state["w"].sharding == plan.in_shardings[0]["w"]
    assert mw.Plan.from_json(restored.plan).counts == plan.counts


def test_a_single_array_is_a_state(tmp_path):
    with mw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, jnp.arange(4))
        checkpoints.wait()
        np.testing.assert_array_equal(
            checkpoints.restore(jnp.zeros(4, int)).state, [0, 1, 2, 3]
        )


def test_a_state_that_is_donated_after_saving_is_saved_as_it_was(tmp_path):
    step = jax.jit(lambda x: x * 1.5 + 1, donate_argnums=0)
    x, wanted = jnp.arange(1 << 20, dtype=jnp.float32), {}
    with mw.Checkpoints(tmp_path, keep=None) as checkpoints:
        for number in range(6):
            wanted[number] = np.array(x, copy=True)
            checkpoints.save(number, {"x": x})
            x = step(x)
        checkpoints.wait()
        for number, value in wanted.items():
            got = checkpoints.restore({"x": x}, step=number).state["x"]
            np.testing.assert_array_equal(got, value)


def test_saving_a_state_again_traces_and_compiles_nothing(tmp_path):
    state, events = {"x": [jnp.ones(3)] * 3, "key": jax.random.key(0)}, []

    def listen(event, duration, **options):
        events.append(event)

    with mw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state)
        jax.monitoring.register_event_duration_secs_listener(listen)
        try:
            checkpoints.save(2, state)
        finally:
            jax.monitoring.unregister_event_duration_listener(listen)
    assert events  # those of Orbax
    assert [each for each in events if each.startswith("/jax/core/compile")] == []


# -- retention -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({"keep": 2}, (7, 8)),
        ({"keep": None}, tuple(range(1, 9))),
        ({"keep": 1, "every": 3}, (3, 6, 8)),
        ({"keep": 1, "best": 2}, (2, 4, 8)),
        ({"keep": 1, "best": 1, "mode": "max"}, (5, 8)),
        ({"keep": 1, "best": 1, "metric": "accuracy", "mode": "max"}, (8,)),
    ],
)
def test_what_the_policy_names_is_kept(policy, kept, tmp_path):
    losses = {1: 9.0, 2: 1.0, 3: float("nan"), 4: 2.0, 5: 10.0, 6: 4.0, 7: 5.0, 8: 6.0}
    with mw.Checkpoints(tmp_path, **policy) as checkpoints:
        for step, loss in losses.items():
            checkpoints.save(step, {"x": jnp.ones(2)}, metrics={"loss": loss})
        checkpoints.wait()
        assert checkpoints.steps == kept
        assert checkpoints.latest == 8
    assert not (tmp_path / "trash").exists()


def test_old_checkpoints_are_deleted_while_a_run_saves_and_never_waits(tmp_path):
    with mw.Checkpoints(tmp_path, keep=1) as checkpoints:
        for step in range(1, 7):
            checkpoints.save(step, {"x": jnp.ones(2)})
            for thread in threading.enumerate():
                if thread.name == "old checkpoints":
                    thread.join()
            here = {*tmp_path.iterdir(), *(tmp_path / "trash").glob("*")}
            names = {path.name for path in here if path.name.isdigit()}
            assert names <= {str(step - 1), str(step)}


def test_the_best_is_known_to_the_next_writer(tmp_path):
    for step, loss in ((1, 1.0), (2, 3.0), (3, 2.0)):
        with mw.Checkpoints(tmp_path, keep=1, best=1) as checkpoints:
            checkpoints.save(step, {"x": jnp.ones(2)}, metrics={"loss": loss})
    assert mw.Checkpoints(tmp_path, read_only=True).steps == (1, 3)


def test_checkpoints_print_what_they_have_and_keep(tmp_path):
    with mw.Checkpoints(tmp_path, keep=2, every=10, best=1) as checkpoints:
        checkpoints.save(1, make_state(), metrics={"loss": 0.25})
        checkpoints.wait()
        text = str(checkpoints)
    assert f"{tmp_path}, keeps last 2, every 10 steps, best 1 by min loss" in text
    assert "step 1" in text
    assert "loss 0.25" in text


# -- refusals --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"keep": 0}, "keep is 0; wanted 1 or more or None"),
        ({"every": True}, "every is True"),
        ({"best": None}, "best is None; wanted 0 or more$"),
        ({"mode": "least"}, "mode is 'least'; wanted 'min'"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(policy, words, tmp_path):
    with pytest.raises(CheckpointError, match=words):
        mw.Checkpoints(tmp_path, **policy)


def test_a_step_is_saved_once(tmp_path):
    with mw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(3, {"x": jnp.ones(2)})
        checkpoints.wait()
        with pytest.raises(CheckpointError, match="has step 3 already"):
            checkpoints.save(3, {"x": jnp.ones(2)})
        with pytest.raises(CheckpointError, match="step is -1"):
            checkpoints.save(-1, {"x": jnp.ones(2)})


@pytest.mark.parametrize(
    ("like", "words"),
    [
        ({"x": jnp.ones(3)}, r"x is float32\[2\], not float32\[3\]"),
        ({"x": jnp.ones(2, int)}, r"x is float32\[2\], not int32\[2\]"),
        ({"y": jnp.ones(2)}, "it has no y"),
        ({}, "it also has x"),
    ],
)
def test_another_state_is_told_from_a_damaged_one(like, words, tmp_path):
    with mw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"x": jnp.ones(2)})
        checkpoints.wait()
        with pytest.raises(CheckpointError, match=words):
            checkpoints.restore(like)
        assert checkpoints.steps == (1,)


def test_a_directory_without_the_wanted_checkpoint_says_what_it_has(tmp_path):
    empty = mw.Checkpoints(tmp_path / "none", read_only=True)
    assert empty.latest is None
    with pytest.raises(CheckpointError, match="no checkpoint that can be restored"):
        empty.restore({"x": jnp.ones(2)})
    with mw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(4, {"x": jnp.ones(2)})
        checkpoints.wait()
        with pytest.raises(CheckpointError, match="no step 5; committed are 4"):
            checkpoints.restore({"x": jnp.ones(2)}, step=5)


def test_reading_and_closed_directories_cannot_be_written(tmp_path):
    reading = mw.Checkpoints(tmp_path, read_only=True)
    with pytest.raises(CheckpointError, match="opened with read_only=True"):
        reading.save(1, {"x": jnp.ones(2)})
    closed = mw.Checkpoints(tmp_path)
    closed.close()
    closed.close()
    with pytest.raises(CheckpointError, match="is closed; open it again"):
        closed.save(1, {"x": jnp.ones(2)})


@pytest.mark.parametrize(
    "state",
    [{}, {"x": "text"}, {"x": None}, {"x": jax.ShapeDtypeStruct((2,), jnp.float32)}],
)
def test_a_state_without_arrays_is_refused(state, tmp_path):
    with (
        mw.Checkpoints(tmp_path) as checkpoints,
        pytest.raises(CheckpointError, match="arrays"),
    ):
        checkpoints.save(1, state)


def test_a_missing_orbax_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "orbax.checkpoint", None)
    with pytest.raises(CheckpointError, match=r"meshwright\[checkpoint\]"):
        mw.Checkpoints(tmp_path)


def test_the_arrays_are_in_the_format_of_orbax(tmp_path):
    with mw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(5, {"x": jnp.arange(4)})
    with ocp.StandardCheckpointer() as plain:
        restored = plain.restore(
            tmp_path / "5" / "state", {"state": {"x": jnp.ones(4, int)}}
        )
    np.testing.assert_array_equal(restored["state"]["x"], [0, 1, 2, 3])

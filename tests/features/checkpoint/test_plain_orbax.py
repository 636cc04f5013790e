"""Checkpoints that plain Orbax wrote, and parts of states, for a warm start."""

import subprocess
import sys
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax.training.train_state import TrainState

import meshwright as mw
from meshwright.errors import CheckpointError
from tests.features.checkpoint.states import assert_same, shardings_on


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.relu(nn.Dense(8)(x)))


def make_train_state(seed=0):
    net = Net()
    params = net.init(jax.random.key(seed), jnp.ones((1, 4)))["params"]
    state = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-3))
    return state.apply_gradients(grads=jax.tree.map(jnp.ones_like, params))


STANDARD = ocp.args.StandardSave
WAYS = {
    "one item": ({}, STANDARD, {}),
    "named item": ({}, lambda s: ocp.args.Composite(state=STANDARD(s)), {}),
    "item and metrics": (
        {"best_fn": lambda metrics: -metrics["loss"]},
        lambda s: ocp.args.Composite(
            state=STANDARD(s), more=ocp.args.JsonSave({"a": 1})
        ),
        {"metrics": {"loss": 0.5}},
    ),
    "prefix": ({"step_prefix": "run"}, ocp.args.PyTreeSave, {}),
}


def write_plain(directory, way, *states):
    options, arguments, more = WAYS[way]
    options = ocp.CheckpointManagerOptions(**options)
    with ocp.CheckpointManager(directory, options=options) as manager:
        for step, state in enumerate(states, 1):
            manager.save(step, args=arguments(state), **more)


@pytest.mark.parametrize("way", WAYS)
def test_a_train_state_of_flax_that_plain_orbax_wrote_is_restored(way, tmp_path):
    first, second = make_train_state(0), make_train_state(1)
    write_plain(tmp_path, way, first, second)
    like = jax.eval_shape(lambda: make_train_state(2))
    reading = mw.Checkpoints(tmp_path, read_only=True)
    assert reading.steps == (1, 2)
    restored = reading.restore(like, shardings_on("four by two", like))
    assert restored.step == 2
    assert_same(restored.state.params, second.params)
    assert_same(restored.state.opt_state, second.opt_state)
    assert int(restored.state.step) == 1
    assert restored.state.params["Dense_0"]["kernel"].sharding.mesh.size == 8
    assert (restored.position, restored.plan) == (None, None)
    assert restored.metrics == ({"loss": 0.5} if "metrics" in way else {})
    again = make_train_state(3)  # its step is a number of Python
    assert reading.restore(again, step=1).state.step == 1
    assert "step 1, saved 20" in str(reading)


def test_a_writer_goes_on_where_plain_orbax_ended(tmp_path):
    state = {"w": jnp.arange(4.0), "key": jax.random.key(3), "n": np.int64(2**40)}
    write_plain(tmp_path, "one item", state)
    with mw.Checkpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore(state).state
        checkpoints.save(2, restored)
        checkpoints.wait()
        assert checkpoints.steps == (1, 2)
        again = checkpoints.restore(state)
    assert again.step == 2
    for found in (restored, again.state):
        assert_same([found["w"], found["key"]], [state["w"], state["key"]])
        assert found["n"] == 2**40
    assert not (tmp_path / "damaged").exists()


def test_another_or_an_unclear_state_of_plain_orbax_is_no_damage(tmp_path):
    write_plain(tmp_path, "one item", {"w": jnp.ones(2)})
    with mw.Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(
            CheckpointError, match=r"w is float32\[2\], not float32\[3\]"
        ):
            checkpoints.restore({"w": jnp.ones(3)})
        with pytest.raises(
            CheckpointError, match=r"w is uint32\[2\], not key|w is float"
        ):
            checkpoints.restore({"w": jax.random.key(0)})
    both = ocp.args.Composite(a=STANDARD({"w": 1.0}), b=STANDARD({"w": 2.0}))
    with ocp.CheckpointManager(tmp_path / "two") as manager:
        manager.save(1, args=both)
    with (
        mw.Checkpoints(tmp_path / "two") as checkpoints,
        pytest.raises(
            CheckpointError, match=r"by Orbax alone, with 2 pytrees \(a, b\)"
        ),
    ):
        checkpoints.restore({"w": 1.0})
    assert not list(tmp_path.rglob("damaged"))


def test_a_part_of_a_state_is_restored_for_a_warm_start(tmp_path):
    state = make_train_state(1)
    with mw.Checkpoints(tmp_path / "ours") as checkpoints:
        checkpoints.save(1, state)
    write_plain(tmp_path / "plain", "one item", state)
    for name in ("ours", "plain"):
        reading = mw.Checkpoints(tmp_path / name, read_only=True)
        like = {"params": {"Dense_1": state.params["Dense_1"]}}
        with pytest.raises(CheckpointError, match=r"it also has .*partial=True"):
            reading.restore(like)
        part = reading.restore(like, partial=True).state
        assert_same(part["params"]["Dense_1"], state.params["Dense_1"])
        with pytest.raises(CheckpointError, match=r"no params\.Dense_2\.bias; did you"):
            reading.restore({"params": {"Dense_2": {"bias": 0.0}}}, partial=True)


DAMAGED = """
import pathlib, sys, jax.numpy as jnp, meshwright as mw
folder = pathlib.Path(sys.argv[1])
state = {f"p{i}": jnp.ones((50, 50)) for i in range(20)}
checkpoints = mw.Checkpoints(folder)
for step in (1, 2):
    checkpoints.save(step, state)
checkpoints.wait()
for path in folder.glob("*/state/**/d/*"):
    path.write_bytes(path.read_bytes()[:-8])
checkpoints.restore(state)
"""


def test_an_uncaught_error_has_one_traceback_without_lines_of_orbax(tmp_path):
    command = [sys.executable, "-c", DAMAGED, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.count("Traceback") == 1, run.stderr
    assert str(Path("orbax", "checkpoint")) not in run.stderr
    assert "Event loop is closed" not in run.stderr
    assert "step 1: p0 cannot be read" in run.stderr


@pytest.mark.parametrize(
    "address", ["gs://bucket/run", "s3://bucket/run", "gs:/bucket"]
)
def test_an_object_store_is_said_not_to_work(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"object stores \(gs://, s3://\) do not"):
        mw.Checkpoints(address)
    assert not list(tmp_path.iterdir())

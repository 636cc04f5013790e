"""`meshwright deploy`."""

import json

import numpy as np
import pytest

from meshwright.errors import MeshwrightWarning
from meshwright.features.deploy import targets

PROGRAM = """
import jax.numpy as jnp
import numpy as np

def step(state, x):
    return state - jnp.mean(x), jnp.sum(x @ state)

def forward(params, x):
    return jnp.tanh(x @ params)

def target():
    return step, (np.ones((4, 2), np.float32), np.ones((3, 4), np.float32))

def target_forward():
    return forward, target()[1]

inference = {"target": target_forward}
"""


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return f"{path}:target"


def test_an_unknown_target_is_refused_with_those_there_are(run, target, tmp_path):
    done = run("deploy", target, "--to", "onx", "--out", str(tmp_path / "out"))
    assert done.status == 2
    assert "did you mean 'onnx'" in done.err
    assert all(name in done.err for name in targets.TARGETS)


@pytest.mark.deploy
def test_a_training_target_is_deployed_in_its_inference_form(run, target, tmp_path):
    out = tmp_path / "out"
    done = run("deploy", target, "--to", "onnx", "--out", str(out), "--json")
    assert done.status == 0, done.err
    record = json.loads(done.out)
    assert record["name"] == "forward"
    assert record["inputs"] == ["x: float32[3, 4]"]
    assert record["error"] < 1e-6
    done = run("deploy", target, "--to", "onnx", "--out", str(out), "--step")
    assert done.status == 0, done.err
    assert "step for onnx" in done.out
    assert json.loads((out / "model.json").read_text())["name"] == "step"


@pytest.mark.deploy
def test_int8_takes_its_ranges_from_the_examples_of_a_file(run, target, tmp_path):
    out, file = tmp_path / "out", tmp_path / "examples.npz"
    given = ("deploy", target, "--to", "onnx", "--out", str(out), "--quantize", "int8")
    with pytest.warns(MeshwrightWarning, match="from the example arguments alone"):
        assert run(*given).status == 0
    np.savez(file, x=np.random.default_rng(0).normal(size=(10, 3, 4)))
    done = run(*given, "--calibration", str(file))
    assert done.status == 0, done.err


def test_a_file_without_equal_numbers_of_examples_is_refused(run, target, tmp_path):
    file = tmp_path / "examples.npz"
    out = str(tmp_path / "out")
    given = ("deploy", target, "--to", "onnx", "--out", out, "--quantize", "int8")
    np.savez(file, x=np.zeros((2, 3, 4)), y=np.zeros((3, 1)))
    done = run(*given, "--calibration", str(file))
    assert done.status == 2
    assert "{'x': 2, 'y': 3} examples by input" in done.err
    file.write_text("no archive")
    done = run(*given, "--calibration", str(file))
    assert done.status == 2
    assert "cannot read the examples" in done.err

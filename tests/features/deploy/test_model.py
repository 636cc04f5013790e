import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import DeployError
from meshwright.features.deploy.deployment import Deployment
from meshwright.features.deploy.folder import checked_folder, staged
from meshwright.features.deploy.loaders.model import checked_input
from meshwright.features.deploy.source import extras
from meshwright.features.deploy.source.deploy_options import DeployOptions
from meshwright.features.deploy.source.model import read_model
from meshwright.features.deploy.targets import TARGETS
from meshwright.features.deploy.write_deployment import fills_of, largest_error
from meshwright.program.capture import capture
from tests.features.deploy import programs


def test_arguments_called_params_are_weights_and_the_rest_are_inputs():
    model = read_model(programs.mlp, programs.MLP, None)
    assert [str(port) for port in model.inputs] == ["x: float32[2, 16]"]
    assert sorted(model.names[v] for v in model.weights) == ["params.b", "params.w"]
    assert [port.name for port in model.outputs] == ["out.best", "out.sums", "out.y"]


def test_a_training_step_keeps_its_state_as_input_and_says_where_it_comes_back():
    model = read_model(programs.step, programs.STEP, None)
    assert not model.weights
    assert model.ties["out.0.params.w"] == "state.params.w"


def test_weights_that_are_no_argument_are_refused_with_the_nearest_name():
    with pytest.raises(DeployError, match=r"'param'.*did you mean 'params'"):
        read_model(programs.mlp, programs.MLP, ["param"])


def test_a_model_without_inputs_is_refused():
    with pytest.raises(DeployError, match="nothing is left to give"):
        read_model(programs.mlp, programs.MLP, ["params", "x"])


@pytest.mark.parametrize(
    ("found", "wanted", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([0.5], [0.25], 1.0),
        ([1e-9], [1.1e-9], 1 / 11),
        ([0.25], [0.0], 0.25),
        ([110.0], [100.0], 0.1),
        ([np.nan], [np.nan], 0.0),
        ([np.nan], [1.0], np.inf),
        ([1.0], [np.inf], np.inf),
        ([[1.0]], [1.0], np.inf),
    ],
)
def test_errors_are_relative_to_the_largest_value_however_small(found, wanted, error):
    assert largest_error(np.array(found), np.array(wanted)) == pytest.approx(error)


@pytest.mark.parametrize(
    ("found", "error"),
    [
        ([-1e9, 2.0], 0.0),
        ([-1e9, 1.0], 0.5),
        ([-0.9e9, 2.0], 0.1),
    ],
)
def test_numbers_of_masked_elements_hide_no_error_of_the_others(found, error):
    wanted = np.array([-1e9, 2.0])
    assert largest_error(np.array(found), wanted, [-1e9]) == pytest.approx(error)


def test_numbers_that_fill_masked_elements_are_read_from_the_program():
    def masked(x):
        return jnp.where(x > 0.5, 3.0 * x, -1e9) + jnp.maximum(
            x, jnp.finfo("float32").min
        )

    program = capture(masked, (np.ones(3, np.float32),)).program
    assert fills_of(program) == [float(np.finfo(np.float32).min), -1e9]


PORT = {"name": "tokens", "shape": [2], "dtype": "int32"}


@pytest.mark.parametrize("given", [[0.5, 1.0], [2**40, 1], [np.nan, 1.0], [np.inf, 0]])
def test_an_input_that_its_dtype_does_not_hold_is_refused(given):
    with pytest.raises(ValueError, match="tokens has values that int32 does not hold"):
        checked_input(np.array(given), PORT)


@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        ("float32", [1e39, 0.0]),
        ("float32", [1j, 0.0]),
        ("float16", [70_000.0, 0.0]),
        ("bfloat16", [1e39, 0.0]),
        ("bool", [0.5, 1.0]),
        ("bool", [np.nan, 1.0]),
        ("int8", [200, 0]),
    ],
)
def test_values_out_of_the_range_of_any_dtype_are_refused(dtype, given):
    with pytest.raises(ValueError, match=f"tokens has values that {dtype} does not"):
        checked_input(given, PORT | {"dtype": dtype})


@pytest.mark.parametrize("given", [None, ["a", "b"], {"x": 1}, [object(), object()]])
def test_an_input_that_is_no_array_of_numbers_is_refused(given):
    with pytest.raises(ValueError, match=r"tokens is .*which is no array of numbers"):
        checked_input(given, PORT | {"dtype": "float32"})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "complex64"])
@pytest.mark.parametrize("given", [[0.1, np.inf], [np.nan, -np.inf], [1, 2]])
def test_floats_are_rounded_and_keep_nan_and_infinity(dtype, given):
    for start in ("float64", "float32", "float16", "bfloat16"):
        array = np.array(given, jnp.dtype(start))
        taken = checked_input(array, PORT | {"dtype": dtype})
        assert taken.dtype == jnp.dtype(dtype)
        wanted = array.astype(jnp.dtype(dtype)).astype(complex)
        np.testing.assert_array_equal(taken.astype(complex), wanted)


@pytest.mark.parametrize(
    "given", [[0.0, 1.0], [True, False], np.array([-5, 7], "int64")]
)
def test_an_input_that_its_dtype_holds_is_taken(given):
    taken = checked_input(np.array(given), PORT)
    assert taken.dtype == np.int32
    assert np.array_equal(taken, given)


def test_a_folder_that_fails_half_way_leaves_nothing_and_keeps_the_old_one(tmp_path):
    out = tmp_path / "model"
    with staged(out) as folder:
        (folder / "model.json").write_text("old")

    def fail():
        with staged(out) as folder:
            (folder / "half").write_text("new")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail()
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert (out / "model.json").read_text() == "old"


def test_a_terminated_process_leaves_nothing(tmp_path):
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from meshwright.features.deploy.folder import staged\n"
        "with staged(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'half').write_text('new')\n"
        "    os.kill(os.getpid(), getattr(signal, sys.argv[2]))\n"
    )

    def end_by(name):
        command = [sys.executable, "-c", program, str(tmp_path / "model"), name]
        return subprocess.run(command, capture_output=True).returncode

    assert end_by("SIGTERM") == 143
    assert not list(tmp_path.iterdir())
    assert end_by("SIGKILL") == -9
    assert list(tmp_path.iterdir())
    with staged(tmp_path / "model") as folder:
        (folder / "whole").write_text("new")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_folder_with_other_files_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(DeployError, match="holds files that no deployment wrote"):
        checked_folder(tmp_path)
    with pytest.raises(DeployError, match="there is no folder"):
        checked_folder(tmp_path / "no" / "where")
    with pytest.raises(DeployError, match="that is a file"):
        checked_folder(tmp_path / "thesis.txt")


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr(
        "meshwright.features.deploy.source.extras.find_spec", lambda name: None
    )
    with pytest.raises(
        DeployError, match=r"onnx.*; pip install 'meshwright\[deploy\]'"
    ):
        extras.require("onnx", "onnxruntime")


def test_options_that_do_not_fit_are_refused_before_anything_is_traced(tmp_path):
    def deploy(**options):
        return mw.deploy(programs.mlp, programs.MLP, out=tmp_path / "a", **options)

    with pytest.raises(DeployError, match=r"no target 'onx'; did you mean 'onnx'"):
        deploy(to="onx")
    with pytest.raises(DeployError, match="wanted 'int8'"):
        deploy(to="onnx", quantize="int4")
    with pytest.raises(DeployError, match="iree-cpu has no int8 form"):
        deploy(to="iree-cpu", quantize="int8")
    with pytest.raises(DeployError, match="calibration is empty; wanted about ten"):
        deploy(to="onnx", quantize="int8", calibration=[])
    symbolic = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 8"), np.float32)
    with pytest.raises(DeployError, match=r"has the shape \(b, 8\); a deployed model"):
        mw.deploy(jnp.sin, (symbolic,), to="onnx", out=tmp_path / "a")
    with pytest.raises(DeployError, match="calibration is for quantize='int8'"):
        deploy(to="onnx", calibration=[{"x": programs.MLP[1]}])
    with pytest.raises(DeployError, match="values of black and white"):
        deploy(to="web", pixels=(1.0, -1.0))
    with pytest.raises(DeployError, match="wanted the values of black and white"):
        deploy(to="web", pixels=(0.0, 0.5, 1.0))
    with pytest.raises(
        DeployError, match="calibration is dict; wanted a list of dicts"
    ):
        deploy(to="onnx", quantize="int8", calibration={"x": programs.MLP[1]})
    with pytest.raises(DeployError, match="labels are 'cat'; wanted a list of texts"):
        deploy(to="web", labels="cat")
    with pytest.raises(DeployError, match="labels are for the pages of web and wasm"):
        deploy(to="onnx", labels=["cat"])
    with pytest.raises(DeployError, match="weights is a text; wanted a list of names"):
        deploy(to="onnx", weights="params")
    assert not list(tmp_path.iterdir())


def test_options_do_not_change_with_the_lists_from_which_they_are_made():
    labels, pixels, calibration = ["cat", "dog"], [0.0, 1.0], [{"x": 1}]
    options = DeployOptions(labels, pixels, "int8", calibration)
    for each in (labels, pixels, calibration):
        each.clear()
    assert options.labels == ("cat", "dog")
    assert options.pixels == (0.0, 1.0)
    assert options.calibration == ({"x": 1},)


def test_a_plan_takes_no_arguments_and_a_function_needs_them(tmp_path):
    with pytest.raises(DeployError, match="wants the function's arguments"):
        mw.deploy(programs.mlp, to="onnx", out=tmp_path / "a")
    with pytest.raises(DeployError, match="a function or a plan, got 'mlp'"):
        mw.deploy("mlp", (), to="onnx", out=tmp_path / "a")
    plan = mw.partition(programs.mlp, {"data": 2}).plan(*programs.MLP)
    with pytest.raises(DeployError, match="a plan has its arguments already"):
        mw.deploy(plan, programs.MLP, to="onnx", out=tmp_path / "a")


def callback(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def printing(x):
    jax.debug.print("{}", x)
    return x


def test_functions_that_no_target_can_express_are_refused(tmp_path):
    def deploy(fn, args, to="onnx"):
        return mw.deploy(fn, args, to=to, out=tmp_path / "a")

    x = np.ones(3, np.float32)
    for target in TARGETS:
        with pytest.raises(
            DeployError, match=r"`pure_callback` at .*test_model\.py:\d+ calls Python"
        ):
            deploy(callback, (x,), target)
    with pytest.raises(DeployError, match=r"`debug_print` at .* calls Python"):
        deploy(printing, (x,))
    with pytest.raises(DeployError, match="returns no array"):
        deploy(lambda x: None, (x,))
    with pytest.raises(
        DeployError, match="the arguments are one ndarray; wanted a tuple"
    ):
        deploy(jnp.sin, x)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("error", [DeployError, RuntimeError, KeyboardInterrupt])
def test_a_target_that_fails_leaves_nothing_and_keeps_the_old_folder(
    name, error, tmp_path, monkeypatch
):
    def write(model, folder, options):
        (folder / "half").write_text("new")
        raise error("half way")

    monkeypatch.setitem(TARGETS, name, replace(TARGETS[name], write=write))
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.json").write_text("old")
    with pytest.raises(error, match="half way"):
        mw.deploy(programs.mlp, programs.MLP, to=name, out=out)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert [p.name for p in out.iterdir()] == ["model.json"]
    assert (out / "model.json").read_text() == "old"


RECORD = Deployment(
    "mlp", "onnx", "build", (("model.onnx", 5000), ("model.py", 900)),
    ("x: float32[2, 16]",), ("out: float32[2]",), 4000, 2e-7, 1e-4, 2e-4,
)  # fmt: skip


def test_a_record_prints_in_ten_lines_and_comes_back_from_json():
    assert Deployment.from_json(RECORD.to_json()) == RECORD
    text = str(RECORD)
    assert len(text.splitlines()) <= 10
    assert "2e-07" in text
    assert "0.1 ms" in text


def test_text_that_is_no_record_is_refused():
    with pytest.raises(DeployError, match="no record of a deployment"):
        Deployment.from_json('{"format": "another"}')

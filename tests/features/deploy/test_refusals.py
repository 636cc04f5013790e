"""What a target cannot express is named with its line, and nothing is written."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import DeployError
from tests.features.deploy import programs

pytestmark = pytest.mark.deploy


def noisy(key, x):
    return x + jax.random.normal(key, x.shape)


def prime_spectrum(x):
    return jnp.abs(jnp.fft.fft(x))


X = np.linspace(0, 1, 8, dtype=np.float32)


@pytest.mark.parametrize(
    ("fn", "args", "target", "kind"),
    [
        (noisy, (jax.random.key(0), X), "onnx", "random"),
        (noisy, (jax.random.key(0), X), "litert", "random"),
        (prime_spectrum, (np.zeros(4099, np.float32),), "iree-cpu", "fft"),
        (prime_spectrum, (np.zeros(4099, np.float32),), "onnx", "fft"),
    ],
)
def test_an_op_without_a_form_is_named_with_its_line(fn, args, target, kind, tmp_path):
    line = rf"`{kind}\S*` of .*(test_refusals|programs)\.py:\d+"
    with pytest.raises(DeployError, match=line):
        mw.deploy(fn, args, to=target, out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["litert", "onnx", "wasm"])
def test_an_input_of_a_dtype_without_a_form_is_named(target, tmp_path):
    with pytest.raises(DeployError, match=r"no complex64, as in z: complex64\[8\]"):
        mw.deploy(lambda z: z + z, (X * 1j,), to=target, out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["iree-cpu", "litert", "onnx"])
def test_linear_algebra_is_refused_without_the_advice_to_take_another_target(
    target, tmp_path
):
    args = (np.eye(3, dtype=np.float32),)
    with pytest.raises(DeployError, match="No target has the factor") as refused:
        mw.deploy(jnp.linalg.cholesky, args, to=target, out=tmp_path / "out")
    assert "use the target" not in str(refused.value)


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda x: x["a/b"] + x["a.b"], "2 arguments have the name 'x.a/b'"),
        (lambda x: {"c.d": x["a/b"], "c/d": x["a/b"]}, "2 results have the name"),
    ],
)
def test_two_arrays_of_one_name_are_refused(fn, what, tmp_path):
    args = ({"a/b": X, **({"a.b": X} if "arguments" in what else {})},)
    with pytest.raises(DeployError, match=what):
        mw.deploy(fn, args, to="onnx", out=tmp_path / "out")


def test_a_loop_of_unknown_length_is_named_where_the_format_has_none(tmp_path):
    with pytest.raises(DeployError, match=r"the loop `while` at .*programs\.py:\d+"):
        mw.deploy(programs.newton, programs.NEWTON, to="litert", out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_labels_of_another_number_of_classes_are_refused(tmp_path):
    def classify(params, image):
        return jnp.mean(image, (1, 2)) @ params

    args = np.ones((3, 4), np.float32), np.ones((1, 8, 8, 3), np.float32)
    for target in ("web", "wasm"):
        with pytest.raises(DeployError, match="2 classes, and the model has 4 scores"):
            mw.deploy(
                classify, args, to=target, out=tmp_path / "out", labels=["cat", "dog"]
            )
    assert not list(tmp_path.iterdir())


def test_a_page_is_refused_for_a_model_that_has_no_panel(tmp_path):
    with pytest.raises(DeployError, match=r"this model takes x: float32\[8\]"):
        mw.deploy(jnp.sin, (X,), to="web", out=tmp_path / "out")
    assert not list(tmp_path.iterdir())
